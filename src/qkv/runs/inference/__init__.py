"""Inference with trained models: generate, chat, classify, embed, fill, score and predict."""
