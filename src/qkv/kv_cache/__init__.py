"""KV caches: full, paged, quantized and windowed."""
