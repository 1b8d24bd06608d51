"""KV caches for decoding: full, windowed, quantized, paged, attention sinks, and eviction by attention (H2O, SnapKV)."""
