"""The taxonomy, and what all packages share: errors, random numbers, settings, checkpoints."""
