"""Traced programs take any batch and length, an empty past too, and exporters are quiet meanwhile."""

from __future__ import annotations

import logging
import warnings

import pytest
import torch
from onnx_models import of_preset

from qkv.runs.export.attention import by_fused_function
from qkv.runs.export.graphs import graphs_of
from qkv.runs.export.tracing import quiet, traced


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "past", "tokens"), [(1, 0, 1), (3, 0, 5), (2, 4, 1), (1, 7, 2)])
@torch.no_grad()
def test_a_program_takes_any_batch_and_length(rows: int, past: int, tokens: int) -> None:
    (graph,) = graphs_of(of_preset("gpt2", max_positions=32), by_fused_function)
    program = traced(graph).module()
    ids, mask = torch.arange(rows * tokens).view(rows, tokens), torch.ones(rows, past + tokens, dtype=torch.int64)
    positions = torch.arange(past, past + tokens).expand(rows, tokens).contiguous()
    states = [torch.randn(rows, *x.shape[1:2], past, x.shape[3]) for x, _ in list(graph.inputs.values())[3:]]
    given = [ids, mask, positions, *states]
    for found, expected in zip(program(given), graph.module(given), strict=True):
        torch.testing.assert_close(found, expected)


def test_loggers_and_warnings_are_quiet_only_inside(recwarn: pytest.WarningsRecorder) -> None:
    logger = logging.getLogger("torch.export")
    before = logger.level
    with quiet():
        assert logger.level == logging.ERROR
        warnings.warn("an exporter's own", stacklevel=1)
    assert logger.level == before and not recwarn
