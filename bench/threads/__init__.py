"""One, two and chosen threads, on quiet cores and beside a busy process."""
