"""GGUF, the file format of llama.cpp: container, quantized blocks, architectures, tokenizers."""
