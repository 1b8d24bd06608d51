"""What was made of tensors is made once, and again as soon as they are others."""

from __future__ import annotations

import torch

from qkv.nn.kernels.cpu.identity_cache import IdentityCache


def test_is_made_once_for_the_same_tensors_in_the_same_places() -> None:
    made, known = [], IdentityCache[int]()

    def asked(*tensors: torch.Tensor | None, what: str = "a") -> int:
        return known.get(what, tensors, lambda: made.append(1) or len(made))

    x, y = torch.zeros(2), torch.zeros(2)
    assert asked(x, None) == asked(x, None) == 1
    assert asked(None, x) == 2  # another place
    assert asked(y, None) == 3  # equal, but another one
    assert asked(x, None, what="b") == 4
    x += 1
    assert asked(x, None) == 5  # written to


def test_keeps_few_and_keeps_no_tensor_alive() -> None:
    known = IdentityCache[int]()
    for _ in range(100):
        known.get("a", [torch.zeros(1)], lambda: 0)
    assert len(known._entries) <= 8
