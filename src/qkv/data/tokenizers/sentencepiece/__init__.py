"""SentencePiece models: parsing, conversion to `tokenizers`, and writing."""
