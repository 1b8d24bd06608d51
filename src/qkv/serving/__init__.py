"""Serving trained runs: an engine that computes on one thread, and an ASGI application in front of it."""
