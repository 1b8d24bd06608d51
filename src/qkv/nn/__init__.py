"""Attention, layers and whole models, what they cost, and what is done to their parts."""
