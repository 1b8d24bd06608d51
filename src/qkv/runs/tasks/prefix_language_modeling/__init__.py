"""Prefix language modeling (T5 §3.2.3): task, objective and metric."""
