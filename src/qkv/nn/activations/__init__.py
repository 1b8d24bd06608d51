"""Record named activations of a model, and change them while it runs."""

from .changes import Add, Change, Mean, Patch, Scale, Zero
from .intervene import intervene
from .record import Activations, record
from .sites import Site, sites

__all__ = ["Activations", "Add", "Change", "Mean", "Patch", "Scale", "Site", "Zero", "intervene", "record", "sites"]
