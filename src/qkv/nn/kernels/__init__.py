"""Attention backends, the requests that they serve, and the plan that all layers share."""
