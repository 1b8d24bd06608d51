"""Data sources that read files, one format or data set a file."""
