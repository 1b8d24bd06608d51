"""Shared by the pre-training tasks on text: corruption, classes of tokens, sentence pairs, rows."""
