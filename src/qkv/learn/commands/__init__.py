"""The commands that explain, one command a file."""
