"""What is behind `make up`: the components of one machine, started, logged, restarted and stopped together."""
