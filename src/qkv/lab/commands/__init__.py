"""The commands of studies, of shrinking and of costs, one command a file."""
