"""Outputs in a given form: JSON schemas, regular expressions and choices."""
