"""Export of models for other programs: one format a file."""
