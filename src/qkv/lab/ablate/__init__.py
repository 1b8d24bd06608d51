"""Ablations: train the variants of a recipe with several seeds at equal budgets, and compare them in a table."""
