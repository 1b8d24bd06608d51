"""What models are taught, one file a task. Importing this registers them, and the sources that only they read."""

from . import forecast  # noqa: F401
