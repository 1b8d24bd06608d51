"""Token classification: a tag for each word."""
