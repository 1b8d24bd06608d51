"""Files of any size, encoding and compression, read by line, record or cell."""
