"""Masked language modeling (BERT), with next-sentence prediction: task, objective and metric."""
