"""Image–text retrieval: vectors of images and texts in one space, by two towers."""

from . import metric, objective, picture, task  # noqa: F401  (each registers what it defines)
