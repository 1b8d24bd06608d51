"""Kernels in C++, and what calls them."""
