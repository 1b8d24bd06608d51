"""Layers without attention: linear, norm, feed-forward, mixture of experts, embeddings, patches, LoRA, RNNs, losses."""
