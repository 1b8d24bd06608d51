"""Bug 24 of those that others shipped: backend fallback."""

from __future__ import annotations

import pytest
import torch
from every import every_backend, leaves
from small import (
    ids,
    model,
    same,
)

from qkv.core.layout import Layout
from qkv.nn.attention.attend import attend
from qkv.nn.kernels.backends import BACKENDS
from qkv.nn.patterns.basic import causal, window


def test_bug_24_a_named_backend_refuses_and_never_falls_back() -> None:
    """What a backend can't serve raises its reason; an unknown name is an error, in a model too."""
    q, k, v = leaves()
    with pytest.raises(ValueError, match=r"sdpa.*soft-cap"):
        attend(q, k, v, softcap=2.0, backend="sdpa")
    with pytest.raises(ValueError, match=r"sdpa.*log-sum-exp"):
        attend(q, k, v, return_lse=True, backend="sdpa")
    with pytest.raises(ValueError, match="no backend 'flash9'"):
        attend(q, k, v, backend="flash9")
    with pytest.raises(ValueError, match="soft-cap"):
        model("decoder", backend="sdpa", heads={"softcap": 3.0})(ids(1, 4))


@every_backend
def test_bug_24_the_named_backend_is_the_one_that_runs(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the named backend's `run` is called, for every layer."""
    ran: list[str] = []
    for name, module in list(BACKENDS.items()):
        run = module.run
        monkeypatch.setattr(module, "run", lambda request, name=name, run=run: (ran.append(name), run(request))[1])
    model("decoder", backend=backend)(ids(2, 5))
    assert len(ran) == 2
    assert backend == "auto" or set(ran) == {backend}


@every_backend
def test_bug_24_masks_are_obeyed_beside_causality(backend: str) -> None:
    """A bias of −∞, padding and segments each hide pairs that the causal pattern allows."""
    q, k, v = leaves(1, 6, 6)
    wanted = attend(q, k, v, pattern=causal() & window(2), backend="reference")
    hidden = torch.ones(6, 6).tril(-2) > 0
    bias = torch.zeros(6, 6, dtype=torch.float64).masked_fill(hidden, float("-inf"))
    same(attend(q, k, v, pattern=causal(), bias=bias, backend=backend), wanted)
    layout = Layout.from_mask(torch.tensor([[True, True, False, True, True, True]]))
    out = attend(q, k, v, pattern=causal(), layout=layout, backend=backend)
    short = [x[:, layout.valid[0]] for x in (q, k, v)]
    same(out[:, layout.valid[0]], attend(*short, pattern=causal(), backend="reference"))
    assert bool((out[:, 2] == 0).all())


def test_bug_24_masks_of_ones_and_of_minus_infinity_are_not_confused() -> None:
    """A mask given for scores, or scores given for a mask, is an error; True, 1 and 1.0 all mean a real token."""
    mask = torch.tensor([[1, 1, 0]])
    for kind in (torch.bool, torch.int64, torch.uint8, torch.float32):
        assert Layout.from_mask(mask.to(kind)).valid.tolist() == [[True, True, False]]
    for wrong in (
        torch.tensor([[0.0, 0.0, float("-inf")]]),
        torch.tensor([[0.0, 0.0, -1e9]]),
        torch.tensor([[0, 0, -10000]]),
    ):
        with pytest.raises(ValueError, match="mask"):
            Layout.from_mask(wrong)
    q, k, v = leaves()
    for wrong in (torch.ones(5, 5, dtype=torch.bool).tril(), torch.ones(5, 5, dtype=torch.int64).tril()):
        with pytest.raises(ValueError, match="bias"):
            attend(q, k, v, bias=wrong)
