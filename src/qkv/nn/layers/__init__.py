"""Layers without attention, one kind a file: linear, norm, feed-forward, mixture of experts, embeddings, patches, frames of
sound, LoRA, RNNs, losses."""
