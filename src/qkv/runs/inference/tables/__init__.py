"""Tables as inputs and outputs of a run: the columns that it reads, and its results in further columns beside them."""
