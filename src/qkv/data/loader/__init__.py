"""Data loading: a source's examples as a stream of batches, built ahead by threads or processes."""
