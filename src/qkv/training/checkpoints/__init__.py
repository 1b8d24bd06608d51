"""Checkpoints: weights, optimizer state, random state and counters, saved whole or not at all."""
