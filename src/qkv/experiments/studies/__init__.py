"""What ablations, tunings and scaling studies share: runs in several processes, their directory, data and live table."""
