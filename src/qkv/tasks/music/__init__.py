"""Music as language."""
