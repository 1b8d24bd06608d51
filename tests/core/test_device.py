from __future__ import annotations

import pytest
import torch

from qkv.core.device import choose


def test_an_unknown_device_is_refused_by_name() -> None:
    assert choose("cpu") == torch.device("cpu")
    assert choose(torch.device("meta")).type == "meta"
    assert choose("auto").type in ("cpu", "cuda", "mps")
    for name in ("gpu", "cud", "cuda:x", "cpu:-1"):
        with pytest.raises(ValueError, match=f"there is no device '{name}'"):
            choose(name)
