"""Looking inside: attention recorded by a tap, and pictures of it that stand in one offline page."""
