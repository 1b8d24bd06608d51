"""Logging of a training: `metrics.jsonl`, TensorBoard, Weights & Biases, and the progress bar."""
