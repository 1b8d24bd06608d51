"""Scaling studies: train a ladder of sizes at several budgets, and fit scaling laws to the losses."""
