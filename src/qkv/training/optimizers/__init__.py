"""Optimizers, one kind a file; `base.Optimizer` is their base class.

Weight decay is decoupled from the gradient everywhere (Loshchilov & Hutter 2019): w ← (1 − lr · λ) w, before the step.
"""

from .adafactor import Adafactor
from .adagrad import Adagrad
from .adamw import AdamW
from .adamw_8bit import AdamW8bit
from .base import NonNegative, Optimizer, Positive
from .lion import Lion
from .muon import Muon
from .parameter_groups import embedding_parameters
from .sgd import SGD

__all__ = [
    "SGD",
    "Adafactor",
    "Adagrad",
    "AdamW",
    "AdamW8bit",
    "Lion",
    "Muon",
    "NonNegative",
    "Optimizer",
    "Positive",
    "embedding_parameters",
]
