"""Experiments: recipes and tasks, training, evaluation, reports, inference, export."""
