"""Numbers of few bits in place of weights: schemes, storage formats, and the methods that choose the codes of a matrix."""
