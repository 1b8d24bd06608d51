"""The `tiled` backend: C++ kernels for CPUs, and FlashAttention in plain PyTorch."""
