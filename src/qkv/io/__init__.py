"""Models in other formats: the Hub's families and tables of names, and directories of runs and of models."""
