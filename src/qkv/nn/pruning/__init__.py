"""Remove heads, neurons and layers that a trained model does not need, and factorize its matrices."""
