"""What was made of a batch's tensors, kept while they are the same ones: all layers of a pass ask, forward and backward."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from torch import Tensor

Made = TypeVar("Made")
_BATCHES = 8  # of which something is remembered


class Remembered(Generic[Made]):
    """A memo by the identity of tensors, and how often each was written to. It keeps none of them alive."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[list[weakref.ref[Tensor]], Made]] = {}

    def of(self, what: Hashable, tensors: Sequence[Tensor | None], make: Callable[[], Made]) -> Made:
        """What `make` gives for `what` and these tensors, made the first time; None stands for its place."""
        key = (what, *(None if x is None else (id(x), 0 if x.is_inference() else x._version) for x in tensors))
        there = [x for x in tensors if x is not None]
        if key in self._known:
            refs, found = self._known[key]
            if all(ref() is x for ref, x in zip(refs, there, strict=True)):
                return found
        made = make()
        if len(self._known) >= _BATCHES:
            self._known.pop(next(iter(self._known)))
        self._known[key] = [weakref.ref(x) for x in there], made
        return made
