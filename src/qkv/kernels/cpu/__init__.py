"""Attention on CPUs: the `tiled` backend, by C++ kernels or FlashAttention in plain PyTorch."""
