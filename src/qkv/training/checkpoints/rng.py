"""Seed, save and restore the random generators that training uses: Python's, NumPy's and PyTorch's."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor


def seed_all(seed: int) -> None:
    """Start Python's, NumPy's and PyTorch's generators from one seed."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def seed_rank(seed: int, number: int, alike: bool) -> None:
    """Seed one of several ranks that have different rows of a batch, as `seed_all` does.

    alike: PyTorch's generator for the CPU draws the same numbers on all of them. Masks of dropout, which differ by the
    number of the row in the batch, are then independent of the ranks.
    """
    seed_all(seed + number)
    if alike:
        torch.default_generator.manual_seed(seed)


def capture() -> dict[str, Any]:
    """Return the state of every generator as JSON data, for `restore`."""
    version, numbers, gauss = random.getstate()
    name, keys, at, has_gauss, cached = np.random.get_state()
    state: dict[str, Any] = {
        "python": [version, list(numbers), gauss],
        "numpy": [name, np.asarray(keys).tolist(), at, has_gauss, cached],
        "torch": _text(torch.get_rng_state()),
    }
    if torch.cuda.is_initialized():
        state["cuda"] = [_text(one) for one in torch.cuda.get_rng_state_all()]
    if torch.backends.mps.is_available():
        state["mps"] = _text(torch.mps.get_rng_state())
    return state


def restore(state: dict[str, Any]) -> None:
    """Restore the state of every generator. Devices that no longer exist are ignored."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    name, keys, at, has_gauss, cached = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), at, has_gauss, cached))
    torch.set_rng_state(_tensor(state["torch"]))
    for device, one in zip(range(torch.cuda.device_count()), state.get("cuda", ()), strict=False):
        torch.cuda.set_rng_state(_tensor(one), device)
    if "mps" in state and torch.backends.mps.is_available():
        torch.mps.set_rng_state(_tensor(state["mps"]))


@contextmanager
def preserved() -> Iterator[None]:
    """Restore the generators at the end of the block."""
    state = capture()
    try:
        yield
    finally:
        restore(state)


def _text(state: Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode()


def _tensor(text: str) -> Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
