"""A model's directory: our own format, the Hub's, adapters, and how a model is built from it."""

from .. import data  # noqa: F401  (before tokenizers, with which it makes a circle)
