"""The Triton kernels. Nothing here is imported before the first call that needs it."""
