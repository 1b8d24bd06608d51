"""Text similarity: vectors of texts whose cosine says how alike the texts are."""

from . import metric, objective, task  # noqa: F401  (each registers what it defines)
