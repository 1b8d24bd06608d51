"""Layouts of training on many ranks: for `qkv cost --plan`, and for runs with several ranks."""
