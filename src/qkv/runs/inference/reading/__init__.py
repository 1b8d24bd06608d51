"""What is read before a model runs: whether a directory is finished, and the files beside texts."""
