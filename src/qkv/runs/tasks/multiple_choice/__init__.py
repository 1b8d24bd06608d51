"""Multiple choice: which of several candidates is right."""

from . import metric, task  # noqa: F401  (each registers what it defines)
