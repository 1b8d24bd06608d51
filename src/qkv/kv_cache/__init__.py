"""What a model remembers while it decodes: full, paged, quantized, and windowed caches."""
