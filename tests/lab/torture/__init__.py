"""The torture harness: a mixed workload on real processes, faults at random by a seed, and an account of the damage."""
