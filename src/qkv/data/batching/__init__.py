"""From examples to arrays: tokenized, packed, bucketed by length and padded."""
