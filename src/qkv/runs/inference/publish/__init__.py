"""Publish a run: its model card, and the commit that takes it to the Hub."""
