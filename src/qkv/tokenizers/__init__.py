"""Tokenizers: trained here, or read from the files of other libraries."""
