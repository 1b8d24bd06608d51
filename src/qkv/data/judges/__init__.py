"""How good a model's outputs are, one file a kind of output."""
