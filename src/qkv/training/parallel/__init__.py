"""Training on many ranks: the process group, data parallelism with ZeRO, and the launcher of local ranks."""
