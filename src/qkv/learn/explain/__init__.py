"""Explanations of one computation with real numbers, step by step, in the terminal, as JSON or as an HTML page."""
