"""Attention patterns (masks): which queries may attend to which keys, as values that combine with `&`, `|` and `~`."""
