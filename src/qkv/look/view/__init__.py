"""Attention of one input as a figure: weights by layer and head, rollout, single scores, experts, pages and pictures."""
