"""Costs of recurrent encoder–decoders: of a generated token, and bytes moved by a training step."""
