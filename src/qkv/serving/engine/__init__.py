"""The engine: continuous batching on one thread, independent of HTTP."""
