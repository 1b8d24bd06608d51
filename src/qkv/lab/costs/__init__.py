"""What training and generating cost, and what fits into a memory, for recipes and models: `qkv cost`."""
