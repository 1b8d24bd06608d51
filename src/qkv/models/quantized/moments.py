"""What layers read: E[x xᵀ] and E|x| of the inputs x of linear layers, over the tokens that are no padding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from ...attention.multi_head import Pass
from ...core.batch import Batch
from ..block import BlockModule

Forward = Callable[[nn.Module, Batch], object]


class Moments:
    """Sums over the inputs x (d_in,) of a layer, and of those that read the same."""

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
    """Hooks that add up the inputs of layers. Layers that read one tensor, such as q, k and v, share their sums."""

    def __init__(self) -> None:
        self.moments: dict[str, Moments] = {}
        self.running: dict[str, Pass] = {}  # by stack
        self.last: tuple[Tensor, Moments] | None = None

    def note_pass(self, stack: str) -> Callable[..., None]:
        def note(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            self.running[stack] = inputs[1]

        return note

    def note_input(self, path: str) -> Callable[..., None]:
        def note(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            x: Tensor = inputs[0]
            if self.last is not None and self.last[0] is x and self.moments.get(path) in (None, self.last[1]):
                self.moments[path] = self.last[1]  # they hold this input already
                return
            own = self.moments.setdefault(path, Moments(x.shape[-1], x.device))
            own.add(x, self._valid(path, x))
            self.last = (x, own)

        return note

    def _valid(self, path: str, x: Tensor) -> Tensor | None:
        """Where x holds tokens that are no padding; None where all are."""
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
    """Return the moments of layers by their paths, in passes over batches. Raises ValueError for a layer without inputs."""
    recorder, training = _Recorder(), model.training
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if isinstance(module, BlockModule):
                hook = module.register_forward_pre_hook(recorder.note_pass(name.partition(".")[0]))
                hooks.callback(hook.remove)
        for path, layer in layers.items():
            hooks.callback(layer.register_forward_pre_hook(recorder.note_input(path)).remove)
        model.eval()
        for batch in batches:
            recorder.last = None
            forward(model, batch)
    model.train(training)
    unread = next((path for path in layers if path not in recorder.moments), None)
    if unread is not None:
        raise ValueError(f"no example of the calibration data reaches the layer {unread}; give more or other data")
    return recorder.moments
