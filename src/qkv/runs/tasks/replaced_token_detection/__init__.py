"""Replaced-token detection (ELECTRA): task, objective and metric."""
