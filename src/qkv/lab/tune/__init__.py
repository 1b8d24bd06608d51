"""Tuning: search the best settings of a recipe over a declared space, with Optuna."""
