"""Experiments: configuration, training loop, evaluation, record, recipes, sweeps."""
