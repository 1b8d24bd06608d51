"""Hooks of a block see the passes of its own thread, and none after it."""

from __future__ import annotations

import threading

import torch
from torch import nn

from qkv.nn.attention.own_calls import hooked, own_calls


def test_a_hook_sees_only_the_passes_of_its_block() -> None:
    layer, seen = nn.Linear(2, 2), list[str]()
    x = torch.zeros(1, 2)
    with hooked([(layer, lambda *args: seen.append("outer"))]):
        layer(x)
        other = threading.Thread(target=layer, args=(x,))
        other.start()
        other.join()
        with hooked([(layer, lambda *args: seen.append("before"))], before=True):
            layer(x)
        layer(x)
    layer(x)
    assert seen == ["outer", "before", "outer", "outer"]
    assert not layer._forward_hooks and not layer._forward_pre_hooks


def test_blocks_within_blocks_are_told_apart() -> None:
    with own_calls() as outer:
        with own_calls() as inner:
            assert outer() and inner()
        assert outer() and not inner()
    assert not outer()
