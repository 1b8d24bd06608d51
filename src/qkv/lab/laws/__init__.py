"""Scaling laws: power laws of the loss in parameters, tokens and FLOPs, fitted to the points of training runs."""
