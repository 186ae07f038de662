"""Figures over time: what upkeep adds up of attempts and samples of queues, for the charts and ``/metrics``."""
