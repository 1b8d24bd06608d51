"""Files of other libraries' tokenizers, one format a file."""
