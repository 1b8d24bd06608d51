"""torch.compile, with a sentence in place of a long traceback where the machine has no compiler."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn


def compiled(model: nn.Module, device: torch.device) -> nn.Module:
    """The model behind torch.compile. Raises ValueError where a CPU's code can't be built here."""
    if device.type == "cpu":
        check_compiler()
    return cast(nn.Module, torch.compile(model))


def check_compiler() -> None:
    """That Inductor finds a C++ compiler: it writes C++ for CPUs."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except (InvalidCxxCompiler, RuntimeError, OSError) as error:
        raise ValueError(
            "training.compile needs a C++ compiler, and none was found; install g++ or clang, or leave compile off"
        ) from error
