"""The description of a stack's layers for the kernels: made once, and used by all steps and whole sequences."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Protocol
from weakref import WeakKeyDictionary

from torch import nn

from ...kernels.native.structures import LayerStruct
from ...positions.base import PositionModule
from ..block import BlockModule
from ..placement import Placement
from .layers import Described, Unfit, are_original, hooks_of, is_simple, layer, settings_of
from .snapshot import Snapshot


class LayerStack(Protocol):
    """What the kernels read of a stack's module."""

    training: bool
    between: nn.ModuleList
    norm: nn.Module
    placement: Placement
    position_of: list[int]

    @property
    def layers(self) -> Sequence[BlockModule]: ...
    @property
    def positions(self) -> Sequence[PositionModule]: ...
    def modules(self) -> Iterator[nn.Module]: ...


class Description:
    """A stack's layers as the kernels read them, without what changes from call to call.

    It holds until a submodule, a tensor or a setting in the stack changes. `fits` says whether the kernels have all that
    the stack does; if they don't, nothing else is here but what they lack, `reason`.
    """

    encoding: object = None  # what whole sequences keep about it (`encoding.py`)

    def __init__(self, stack: LayerStack) -> None:
        self.snapshot, self.fits, self.reason = Snapshot(stack), False, ""
        try:
            self._describe(stack)
        except Unfit as lacking:
            self.reason = str(lacking)
            return
        self.fits = True

    def _describe(self, stack: LayerStack) -> None:
        if len(stack.between) or stack.placement.streams > 1:
            raise Unfit("layers between blocks, or several residual streams")
        if not all(map(is_simple, stack.positions)):
            raise Unfit("rotations of queries and keys other than Rotary's")
        self.known, blocks = Described(), stack.layers
        self._layers = (LayerStruct * len(blocks))(*(layer(block, self.known) for block in blocks))
        self.norm = self.known.norm(stack.norm)
        self.position_of = list(stack.position_of)
        self._settings = settings_of([*blocks, stack.norm, *stack.positions])
        self._size = sum(map(len, self._settings))
        self._hooks = [table for block in blocks for table in hooks_of(block)] + hooks_of(stack.norm)
        self._places = [tensor.data_ptr() for tensor in self.known.tensors]

    def layers(self) -> ctypes.Array[LayerStruct]:
        """Return a copy of the layers' descriptions. The caller adds what changes between calls."""
        return type(self._layers).from_buffer_copy(self._layers)

    def is_in_place(self) -> bool:
        """Whether the parameters are where they were."""
        return [tensor.data_ptr() for tensor in self.known.tensors] == self._places

    def is_watched(self) -> bool:
        """Whether a module has a hook, or a method was replaced on a class or on a module."""
        return any(self._hooks) or sum(map(len, self._settings)) != self._size or not are_original()


def description_of(stack: LayerStack) -> Description:
    """The description of a stack, made anew if something in it has changed."""
    known = _KNOWN.get(stack)
    if known is None or not known.snapshot.holds():
        known = _KNOWN[stack] = Description(stack)
    return known


_KNOWN: WeakKeyDictionary[LayerStack, Description] = WeakKeyDictionary()
