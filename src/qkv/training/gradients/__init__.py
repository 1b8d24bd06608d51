"""Gradients between the backward pass and the optimizer: accumulation over batches, and clipping."""
