"""What is done to many runs: studies, pruning, quantization and costs. Nothing below imports it."""
