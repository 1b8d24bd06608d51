"""What explains: computations with real numbers, the tour, checks of the machine. Nothing below imports it."""
