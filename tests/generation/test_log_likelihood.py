"""`score` against one forward pass per row."""

from __future__ import annotations

import math

import pytest
import torch

from qkv.core.layout import Layout
from qkv.generation import score

ROWS = [[4, 5, 6, 7, 8], [9], [10, 11, 12], [1, 2]]
TARGETS = [[3, 2], [5, 6, 7, 2], [2], []]


def expected(model, fed: list[int], start: int, source: list[int] | None = None) -> list[float]:
    ids = torch.tensor([fed])
    layout = Layout.full(len(fed))
    with torch.inference_mode():
        if source is None:
            logits = model(ids, layout=layout)
        else:
            logits = model(torch.tensor([source]), ids, layout=Layout.full(len(source)), target_layout=layout)
    log_probs = logits.log_softmax(-1)[0]
    return [float(log_probs[i, fed[i + 1]]) for i in range(start, len(fed) - 1)]


def test_decoder_only_targets(tiny) -> None:
    model = tiny().eval()
    out = score(model, ROWS, TARGETS)
    for row, target, given in zip(ROWS, TARGETS, out.log_probs, strict=True):
        assert given == pytest.approx(expected(model, row + target, len(row) - 1), abs=1e-5)
    assert out.totals == pytest.approx([sum(row) for row in out.log_probs])
    assert out.perplexity == pytest.approx(math.exp(-sum(out.totals) / 7))


def test_decoder_only_whole_rows(tiny) -> None:
    model = tiny().eval()
    without, with_bos = score(model, ROWS), score(model, ROWS, bos_id=1)
    for row, short, long in zip(ROWS, without.log_probs, with_bos.log_probs, strict=True):
        assert short == pytest.approx(expected(model, row, 0), abs=1e-5)
        assert long == pytest.approx(expected(model, [1, *row], 0), abs=1e-5)
    assert [len(row) for row in without.log_probs] == [4, 0, 2, 1]


def test_encoder_decoder(tiny) -> None:
    model = tiny(encoder_decoder=True).eval()
    out = score(model, ROWS, TARGETS, bos_id=1)
    for row, target, given in zip(ROWS, TARGETS, out.log_probs, strict=True):
        assert given == pytest.approx(expected(model, [1, *target], 0, row), abs=1e-5)


def test_rows_are_scored_in_groups_that_fit(tiny, monkeypatch) -> None:
    model = tiny()
    whole = score(model, ROWS, TARGETS)
    monkeypatch.setattr("qkv.generation.log_likelihood.LOGITS", 1)
    assert [len(row) for row in score(model, ROWS, TARGETS).log_probs] == [2, 4, 1, 0]
    for one, many in zip(score(model, ROWS, TARGETS).log_probs, whole.log_probs, strict=True):
        assert one == pytest.approx(many, abs=1e-5)


def test_probabilities_of_all_outputs_sum_to_one(fixed) -> None:
    class Whole(type(fixed([[1.0]]))):  # the table with a forward pass
        def forward(self, ids, target=None, *, layout, target_layout=None):
            return self.logits[ids]

    model = Whole(torch.tensor([[0.2, 0.8, 0.0], [0.5, 0.25, 0.25], [1.0, 0.0, 0.0]]).log())
    pairs = [[a, b] for a in range(3) for b in range(3)]
    totals = score(model, [[0]] * 9, pairs).totals
    assert sum(map(math.exp, totals)) == pytest.approx(1.0)


def test_nothing_to_score_has_no_perplexity(tiny) -> None:
    assert score(tiny(), [[1], []]).log_probs == [[], []]
    assert math.isnan(score(tiny(), [[1]]).perplexity)


@pytest.mark.parametrize(
    ("ids", "targets", "encoder_decoder", "said"),
    [
        ([[1], [2]], [[1]], False, r"inputs and targets differ in number \(2 and 1\)"),
        ([[]], [[1]], False, "row 0 has an empty prompt"),
        ([[1]], None, True, "bos_id"),
        ([[1, 99]], None, False, "row 0 holds token 99"),
        ([[1] * 30], [[1] * 30], False, "row 0 has 59 tokens to read; the model's context is 40"),
    ],
)
def test_bad_input_gets_a_sentence(tiny, ids, targets, encoder_decoder: bool, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        score(tiny(encoder_decoder=encoder_decoder), ids, targets)
