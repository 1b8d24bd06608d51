"""Captioning: a sentence about a picture."""
