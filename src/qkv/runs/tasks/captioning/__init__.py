"""Captioning: a sentence about a picture, by a decoder that attends to an encoder or reads the picture itself."""

from . import joint, metric, task  # noqa: F401  (each registers what it defines)
