"""Masked autoencoding, denoising and super-resolution of pictures."""
