"""A model's directory: our own format, the Hub's, adapters, and how a model is built from it."""
