"""The computations that `qkv explain` shows, one in a file: each has `example()` and `of(subject)`."""
