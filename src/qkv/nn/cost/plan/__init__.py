"""Layouts of training on many ranks: memory, communication and time of a step, and the search for the fastest layout."""
