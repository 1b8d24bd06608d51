"""Speculative decoding: proposing tokens by look-up, a draft model or early exit, and checking them in one pass."""
