"""Generated data sources, one in each file, which need no download."""
