"""packed = separate: documents in one row give what each gives by itself: outputs, losses, gradients."""

from __future__ import annotations

import pytest
import torch
from axes import BLOCKS, FAMILIES, HEADS, backends, named, patterns, positions, words
from selection import Combination, Contract
from small import alone, gradients, ids, model, packed, same, same_gradients

from qkv.core.batch import IGNORE

ROWS = [[4, 1, 5], [7, 2]]
SOURCES = [[3, 2, 1], [1, 6]]


PACKED = Contract(
    {
        "pattern": patterns(),
        "position": positions(),
        "backend": backends(),
        "family": words(*FAMILIES),
        "heads": named(HEADS),
        "block": named(BLOCKS),
    },
    turned=["heads", "block"],
)


@pytest.mark.contract(PACKED)
def test_packed_rows_give_what_separate_rows_give(case: Combination) -> None:
    built = model(case.family, case.pattern, case.position, case.backend, case.heads, case.block)
    paired = case.family == "encoder-decoder"
    layout, source_layout = packed(ROWS, 11), packed(SOURCES)
    tokens, source = ids(*layout.shape, seed=1), ids(*source_layout.shape, seed=2)
    labels = ids(*layout.shape, seed=3).masked_fill(~layout.valid, IGNORE)
    inputs = {"ids": tokens, "layout": layout}
    if paired:
        inputs = {"ids": source, "layout": source_layout, "target": tokens, "target_layout": layout}
    logits = built(**inputs)
    loss = built(**inputs, labels=labels).loss
    loss.backward()
    together, one_by_one = gradients(built), 0.0
    for row, lengths in enumerate(ROWS):
        for number, n in enumerate(lengths):
            at, begin = sum(lengths[:number]), sum(SOURCES[row][:number])
            document = tokens[row : row + 1, at : at + n]
            single = {"ids": document, "layout": alone(n)}
            if paired:
                end = begin + SOURCES[row][number]
                partner = {"ids": source[row : row + 1, begin:end], "layout": alone(end - begin)}
                single = {**partner, "target": document, "target_layout": alone(n)}
            same(logits[row, at : at + n], built(**single)[0], what=f"logits of document {number} in row {row}")
            part = built(**single, labels=labels[row : row + 1, at : at + n]).loss
            part.backward()
            one_by_one += float(part.detach())
    assert float(loss.detach()) == pytest.approx(one_by_one, rel=1e-10)
    same_gradients(together, gradients(built))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_document_does_not_notice_what_shares_its_row(family: str) -> None:
    """Bit for bit: the other documents' tokens are changed, the shapes stay."""
    built, layout = model(family), packed(ROWS, 11)
    tokens = ids(*layout.shape, seed=1)
    other = tokens.clone()
    other[0, :4] = (other[0, :4] + 1) % 17
    other[0, 5:] = (other[0, 5:] + 1) % 17
    arguments = {"ids": ids(2, 6), "layout": packed(SOURCES, 7).slice(0, 6)} if family == "encoder-decoder" else {}

    def logits(x: torch.Tensor) -> torch.Tensor:
        if arguments:
            return built(arguments["ids"], x, layout=arguments["layout"], target_layout=layout)
        return built(x, layout=layout)

    assert torch.equal(logits(tokens)[0, 4], logits(other)[0, 4])
