"""Object detection: classes and boxes."""
