"""What a training tells: `metrics.jsonl`, loggers, and the progress bar."""
