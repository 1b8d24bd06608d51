"""SentencePiece models, read, run and written."""
