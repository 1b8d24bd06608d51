"""Shared by ablations, tunings and scaling studies: worker processes, the directory, the data check, the live table."""
