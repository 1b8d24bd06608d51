"""What a model costs, known before it runs: parameters, FLOPs, memory and time."""
