"""Checkpoints of a training: weights, optimizer state, random state and counters, written atomically."""
