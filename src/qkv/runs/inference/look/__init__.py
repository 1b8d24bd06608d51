"""Look into trained models: what a run reads for an input, the figure of its attention, and the live page."""
