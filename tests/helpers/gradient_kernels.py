"""Choose how gradients of weights are computed."""

from __future__ import annotations

import pytest

from qkv.nn.kernels.native import weight_gradients


def compute_by_panels(wanted: bool, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Use the C++ kernels, which pack panels, or else transposed copies. Skips the test if the kernels are missing."""
    if wanted and not weight_gradients.ready():
        pytest.skip("gradients of weights in C++ need AVX-512 and a compiler")
    monkeypatch.setattr(weight_gradients, "ready", lambda: wanted)
    return wanted
