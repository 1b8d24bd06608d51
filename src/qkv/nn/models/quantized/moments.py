"""What layers read: E[x xᵀ] and E|x| of the inputs x of linear layers, over the tokens that are no padding; for
experts, over the tokens that are routed to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ....core.batch import Batch
from ...attention.mixer import Pass
from ...attention.own_calls import hooked
from ...layers.grouped_linear import GroupedLinear
from ..block import BlockModule
from .parts import names

Forward = Callable[[nn.Module, Batch], object]


class Moments:
    """Sums over the inputs x (d_in,) of a layer, and of layers that read the same."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.products = torch.zeros(size, size, device=device)
        self.magnitudes = torch.zeros(size, device=device)
        self.count = 0

    def add(self, x: Tensor, valid: Tensor | None) -> None:
        tokens = (x.flatten(0, -2) if valid is None else x[valid]).float()
        self.products.addmm_(tokens.T, tokens)
        self.magnitudes += tokens.abs().sum(0)
        self.count += len(tokens)

    @property
    def second(self) -> Tensor:
        """E[x xᵀ]."""
        return self.products / max(self.count, 1)

    @property
    def mean(self) -> Tensor:
        """E|x|."""
        return self.magnitudes / max(self.count, 1)


class _Recorder:
    """Hooks that add up the inputs of matrices. Layers that read one tensor, such as q, k and v, share their sums."""

    def __init__(self) -> None:
        self.moments: dict[str, Moments] = {}
        self.running: dict[str, Pass] = {}  # by stack
        self.last: tuple[Tensor, list[Moments]] | None = None

    def note_pass(self, stack: str) -> Callable[..., None]:
        def note(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            self.running[stack] = inputs[1]

        return note

    def note_input(self, path: str, layer: nn.Module) -> Callable[..., None]:
        own_names = names(path, layer)

        def note(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            x: Tensor = inputs[0]
            if self.last is not None and self.last[0] is x and self._may_share(own_names, self.last[1]):
                self.moments |= zip(own_names, self.last[1], strict=True)  # they hold this input already
                return
            own = [self.moments.setdefault(name, Moments(x.shape[-1], x.device)) for name in own_names]
            if isinstance(layer, GroupedLinear):
                stops = inputs[1].tolist()
                for moments, start, stop in zip(own, [0, *stops], stops, strict=False):
                    moments.add(x[start:stop], None)
            else:
                own[0].add(x, self._valid(path, x))
            self.last = (x, own)

        return note

    def _may_share(self, own_names: list[str], last: list[Moments]) -> bool:
        """Whether matrices have no sums yet, or have these."""
        return len(own_names) == len(last) and all(
            self.moments.get(name) in (None, other) for name, other in zip(own_names, last, strict=True)
        )

    def _valid(self, path: str, x: Tensor) -> Tensor | None:
        """Where x holds tokens that are no padding; None if all are."""
        run = self.running.get(path.partition(".")[0])
        if run is None:
            return None
        layout = run.memory_layout if path.endswith((".cross.k", ".cross.v")) else run.layout
        if layout is None or layout.padding == "none" or x.ndim != 3 or layout.valid.shape[1] != x.shape[1]:
            return None
        return layout.valid.expand(x.shape[:2])


@torch.no_grad()
def moments(
    model: nn.Module, layers: Mapping[str, nn.Module], batches: Iterable[Batch], forward: Forward
) -> dict[str, Moments]:
    """Return the moments of the layers' matrices by their names (`parts`), in passes over batches. Raises ValueError for a
    layer without inputs; an expert may have none."""
    recorder, training = _Recorder(), model.training
    hooks: list[tuple[nn.Module, Callable[..., Any]]] = [
        (module, recorder.note_pass(name.partition(".")[0]))
        for name, module in model.named_modules()
        if isinstance(module, BlockModule)
    ]
    hooks += [(layer, recorder.note_input(path, layer)) for path, layer in layers.items()]
    with hooked(hooks, before=True):
        model.eval()
        for batch in batches:
            recorder.last = None
            forward(model, batch)
    model.train(training)
    unread = next((path for path, layer in layers.items() if names(path, layer)[0] not in recorder.moments), None)
    if unread is not None:
        raise ValueError(f"no example of the calibration data reaches the layer {unread}; give more or other data")
    return recorder.moments
