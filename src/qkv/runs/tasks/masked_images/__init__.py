"""Masked autoencoding, denoising and super-resolution of pictures."""

from . import metric, task  # noqa: F401  (each registers what it defines)
