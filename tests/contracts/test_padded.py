"""padded = alone: a row of a batch, padded on either side or in between, gives what it gives by itself."""

from __future__ import annotations

import pytest
import torch
from axes import BLOCKS, FAMILIES, HEADS, backends, named, patterns, positions, words
from selection import Combination, Contract
from small import VOCAB, alone, gradients, ids, model, padded, same, same_gradients, spread

from qkv.core.batch import IGNORE

LENGTHS, SOURCES = [6, 1, 9], [2, 8, 5]


PADDED = Contract(
    {
        "pattern": patterns(),
        "position": positions(),
        "backend": backends(),
        "family": words(*FAMILIES),
        "side": words("left", "right", "holes"),
        "heads": named(HEADS),
        "block": named(BLOCKS),
    },
    turned=["side", "heads", "block"],
)


@pytest.mark.contract(PADDED)
def test_padding_changes_no_logits_loss_or_gradient(case: Combination) -> None:
    """Logits, the loss over real tokens, and its gradients."""
    built = model(case.family, case.pattern, case.position, case.backend, case.heads, case.block)
    paired = case.family == "encoder-decoder"
    rows, sources = ([ids(n, seed=n + k) for n in lengths] for k, lengths in enumerate((LENGTHS, SOURCES)))
    labels = [ids(n, seed=50 + n) for n in LENGTHS]
    layout, source_layout = padded(LENGTHS, case.side), padded(SOURCES, case.side, 11)
    wide = torch.full(layout.shape, IGNORE)
    for i, row in enumerate(labels):
        wide[i, layout.valid[i]] = row
    inputs = {"ids": spread(rows, layout), "layout": layout}
    if paired:
        inputs = {
            "ids": spread(sources, source_layout),
            "layout": source_layout,
            "target": inputs["ids"],
            "target_layout": layout,
        }
    logits = built(**inputs)
    loss = built(**inputs, labels=wide).loss
    loss.backward()
    together, one_by_one = gradients(built), 0.0
    for i, n in enumerate(LENGTHS):
        single = {"ids": rows[i][None], "layout": alone(n)}
        if paired:
            single = {
                "ids": sources[i][None],
                "layout": alone(SOURCES[i]),
                "target": rows[i][None],
                "target_layout": alone(n),
            }
        same(logits[i, layout.valid[i]], built(**single)[0], what=f"row {i}'s logits")
        part = built(**single, labels=labels[i][None]).loss
        part.backward()
        one_by_one += float(part)
    assert float(loss) == pytest.approx(one_by_one, rel=1e-10)
    same_gradients(together, gradients(built))


@pytest.mark.parametrize("side", ["left", "right"])
def test_an_attention_mask_says_what_a_layout_says(side: str) -> None:
    built = model("decoder")
    layout = padded(LENGTHS, side)
    tokens = ids(*layout.shape, seed=4)
    valid = layout.valid
    for mask in (valid, valid.long(), valid.float()):
        same(built(tokens, attention_mask=mask)[valid], built(tokens, layout=layout)[valid])
    assert built(tokens).shape == (*tokens.shape, VOCAB)
