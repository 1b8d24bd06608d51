"""Other libraries' directories: their configurations and tensors as ours, and back. Families are given as tables."""
