"""Trace a graph by `torch.export`, with batch and lengths that may be any, from one row and a past of 0 tokens on."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import torch

from .graphs import TOTAL, Graph


@torch.no_grad()
def traced(graph: Graph) -> torch.export.ExportedProgram:
    """The program of a graph. `total_sequence_length` is the sum of past and new tokens, so it needs no name."""
    names: dict[str, Any] = {TOTAL: torch.export.Dim.AUTO}

    def dim(name: str) -> Any:
        if name not in names:
            names[name] = torch.export.Dim(name, min=0 if name.startswith("past") else 1)
        return names[name]

    shapes = [{axis: dim(name) for axis, name in axes.items()} for _, axes in graph.inputs.values()]
    graph.module.eval()
    with any_sizes(), quiet():
        return torch.export.export(
            graph.module,
            graph.examples(),
            dynamic_shapes=(shapes,),
            strict=False,
            prefer_deferred_runtime_asserts_over_guards=True,
        )


def any_sizes() -> contextlib.AbstractContextManager[None]:
    """Sizes 0 and 1 are not special: a past may be empty, and a step has one token."""
    from torch.fx.experimental import _config

    made: contextlib.AbstractContextManager[None] = _config.patch(backed_size_oblivious=True)  # type: ignore[attr-defined]
    return made


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what PyTorch's exporters log about libraries that are not installed, and their warnings about themselves."""
    import warnings

    loggers = [logging.getLogger(name) for name in (None, "torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
