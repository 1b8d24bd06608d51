"""Generated data sources, one a file: nothing to download, so that recipes run anywhere."""
