"""Costs of recurrent encoder–decoders: FLOPs and bytes of a generated token and of a training step."""
