"""Attention patterns: who may attend to whom, as values that combine with `&`, `|` and `~`."""
