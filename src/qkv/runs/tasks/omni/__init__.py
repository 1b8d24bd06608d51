"""Omni: questions and conversations with pictures, sounds and series between the words, answered by one decoder."""

from . import metric, task  # noqa: F401  (each registers what it defines)
