"""Record named activations of a model, and change them while it runs."""

from .changes import Add, Change, Mean, Patch, ScaleActivation, Zero
from .intervene import intervene
from .record import Activations, record
from .sites import Site, sites

__all__ = [
    "Activations",
    "Add",
    "Change",
    "Mean",
    "Patch",
    "ScaleActivation",
    "Site",
    "Zero",
    "intervene",
    "record",
    "sites",
]
