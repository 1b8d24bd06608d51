"""Inspect models: attention maps, hidden states, charts and heat maps as SVG for one offline HTML page."""
