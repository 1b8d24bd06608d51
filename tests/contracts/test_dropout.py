"""With dropout on: kernels equal the reference, and neither threads, padding, packing nor recomputation change a step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from axes import FAMILIES
from small import gradients, ids, model, packed, padded, same_gradients, spread
from torch import Tensor

from qkv.core.batch import IGNORE
from qkv.nn.attention.attend import attend
from qkv.nn.models.transformer import TransformerModel
from qkv.nn.patterns.basic import Pattern, causal, full, window
from qkv.nn.patterns.documents import TokenPlaces, placed, places_of

LENGTHS, SOURCES = [9, 4, 7], [6, 11, 3]
WIDE = {"d_head": 16}  # a width of heads that the C++ kernels serve


def made(family: str, backend: str = "auto", pattern: Pattern | None = None) -> TransformerModel:
    return model(family, pattern, None, backend, heads=WIDE, dropout=0.3, dtype=torch.float32).train()


def inputs(family: str, extra: int = 0, side: str = "right") -> dict[str, Any]:
    """Padded rows and their labels; `extra` tokens of padding more."""
    rows, sources = ([ids(n, seed=n + k) for n in lengths] for k, lengths in enumerate((LENGTHS, SOURCES)))
    layout, source_layout = padded(LENGTHS, side, 10 + extra), padded(SOURCES, side, 12 + extra)
    labels = torch.where(layout.valid, spread(rows, layout), IGNORE)
    own: dict[str, Tensor | Any] = {"ids": spread(rows, layout), "layout": layout}
    if family == "encoder-decoder":
        own = {
            "ids": spread(sources, source_layout),
            "layout": source_layout,
            "target": own["ids"],
            "target_layout": layout,
        }
    return {**own, "labels": labels}


def step(built: TransformerModel, given: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss and the gradients with the draws of one seed."""
    built.zero_grad()
    torch.manual_seed(11)
    loss = built(**given).loss
    loss.backward()
    return loss.detach(), gradients(built)


def check_same(one: tuple[Tensor, dict[str, Tensor]], other: tuple[Tensor, dict[str, Tensor]]) -> None:
    torch.testing.assert_close(one[0], other[0], rtol=2e-5, atol=2e-5)
    same_gradients(one[1], other[1], 2e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_and_the_reference_drop_the_same_weights(family: str) -> None:
    results = [step(made(family, backend), inputs(family)) for backend in ("reference", "auto", "tiled")]
    check_same(results[0], results[1])
    check_same(results[0], results[2])
    evaluated = made(family).eval()(**inputs(family)).loss.detach()
    assert abs(float(evaluated - results[0][0])) > 1e-3, "dropout left no trace"


@pytest.mark.parametrize("pattern", [causal() & window(3), full()])
def test_patterns_of_decoders_drop_the_same_weights(pattern: Pattern) -> None:
    check_same(*(step(made("decoder", backend, pattern), inputs("decoder")) for backend in ("reference", "auto")))


@pytest.mark.parametrize("family", FAMILIES)
def test_wider_padding_changes_no_draw(family: str) -> None:
    check_same(*(step(made(family), inputs(family, extra)) for extra in (0, 5)))


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_on_the_left_changes_no_draw(family: str) -> None:
    check_same(*(step(made(family), inputs(family, 3, side)) for side in ("right", "left")))


def packed_inputs(given: dict[str, Any], side: str, width: int) -> dict[str, Any]:
    """The same rows as documents of one full row, two rows and padding."""
    layout = given["layout" if side == "ids" else "target_layout"]
    rows = [row[valid] for row, valid in zip(given[side], layout.valid, strict=True)]
    lengths = [len(row) for row in rows]
    together = packed([lengths[:2], lengths[2:]], width)
    made = torch.zeros(2, width, dtype=torch.long)
    made[0, : sum(lengths[:2])], made[1, : lengths[2]] = torch.cat(rows[:2]), rows[2]
    return {side: made, "layout" if side == "ids" else "target_layout": together}


@pytest.mark.parametrize("backend", ["auto", "reference", "tiled"])
@pytest.mark.parametrize("family", FAMILIES)
def test_packed_documents_drop_what_rows_drop(family: str, backend: str) -> None:
    apart = inputs(family)
    together = packed_inputs(apart, "ids", 17)
    own = "target" if family == "encoder-decoder" else "ids"
    if own == "target":
        together |= packed_inputs(apart, "target", 15)
    layout = together["target_layout" if own == "target" else "layout"]
    together["labels"] = torch.where(layout.valid, together[own], IGNORE)
    check_same(step(made(family, backend), apart), step(made(family, backend), together))


@pytest.mark.parametrize("pattern", [causal(), full(), causal() & window(20)])
def test_kernels_drop_the_same_weights_of_long_packed_rows(pattern: Pattern) -> None:
    layout = packed([[70, 130], [9, 150]], 210)
    inputs = [torch.randn(2, 210, 4, 16, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    results = []
    for backend in ("reference", "auto", "tiled"):
        q, k, v = (x.clone().requires_grad_() for x in inputs[:3])
        torch.manual_seed(3)
        with placed(replace(places_of(layout) or TokenPlaces(), head=3)):
            out = attend(q, k, v, pattern=pattern, layout=layout, dropout=0.3, backend=backend)
        results.append((out, *torch.autograd.grad(out, (q, k, v), inputs[3])))
    for found in results[1:]:
        for one, other in zip(found, results[0], strict=True):
            torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_recomputed_packed_documents_draw_the_same_masks(family: str) -> None:
    given = inputs(family) | packed_inputs(inputs(family), "ids", 17)
    if family != "encoder-decoder":
        given["labels"] = torch.where(given["layout"].valid, given["ids"], IGNORE)
    else:
        given |= packed_inputs(inputs(family), "target", 17)
        given["labels"] = torch.where(given["target_layout"].valid, given["target"], IGNORE)
    again = made(family)
    again.recompute("blocks")
    check_same(step(made(family), given), step(again, given))


@pytest.mark.parametrize("family", FAMILIES)
def test_threads_change_no_bit(family: str) -> None:
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(step(made(family), inputs(family)))
    finally:
        torch.set_num_threads(before)
    check_same(*results)


@pytest.mark.parametrize("family", FAMILIES)
def test_recomputation_draws_the_same_masks(family: str) -> None:
    again = made(family)
    again.recompute("blocks")
    check_same(step(made(family), inputs(family)), step(again, inputs(family)))
