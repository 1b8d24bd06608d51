"""Attention: the function `attend`, score functions, weightings, and one module for each mechanism."""

from . import bigbird, convolution, latent, linear, linformer, longformer, lsh, performer  # noqa: F401  (registers their kinds)
