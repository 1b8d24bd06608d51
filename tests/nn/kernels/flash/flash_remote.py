"""What the tests of the Triton kernels share: the limits of errors, and a skip if Triton is missing."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import torch

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton has no wheels for this platform")
LIMITS = {torch.float32: 1e-5, torch.float16: 2e-3}
Remote = Callable[..., Any]
