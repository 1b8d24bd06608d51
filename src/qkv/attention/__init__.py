"""Attention: the function `attend`, what scores it, and every layer that attends, one mechanism a file."""
