"""Calls of tools in replies of a chat."""
