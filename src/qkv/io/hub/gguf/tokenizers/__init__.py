"""Tokenizers of GGUF files, one kind of llama.cpp a file, and what they share."""
