"""Tokenizers: training, loading from the files of other libraries, chat templates."""
