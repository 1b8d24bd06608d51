"""Quantize the weights of a trained model: which layers, what their inputs are, and their codes."""
