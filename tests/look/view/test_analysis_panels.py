"""Panels of the analysis: predictions of every layer, scores of every head."""

from __future__ import annotations

import run_untrained
import torch

from qkv.look.analysis.head_scores import head_scores, induction_scores
from qkv.look.view.analysis_panels import MOST_TOKENS, head_scores_panel, lens_panel
from qkv.nn.attention import tap
from qkv.nn.attention.attend import attend
from qkv.runs.inference.look.figure import INDUCTION
from qkv.runs.inference.run import Run


def lm(**sizes: int) -> Run:
    return run_untrained.of("gpt2", run_untrained.words(), "continue", n_layers=2, **sizes)


def test_the_last_row_of_the_lens_is_what_the_model_predicts() -> None:
    run = lm()
    ids = torch.tensor([run.encode("abcdef")])
    panel = lens_panel(run.model, ((ids,), {}), ["x", "y"], [2, 5], str)
    assert panel["rows"] == ["embedding", "layer 0", "layer 1"] and panel["columns"] == ["x", "y"]
    with torch.no_grad():
        probabilities, best = run.model(ids)[0, [2, 5]].softmax(-1).max(-1)
    assert panel["texts"][-1] == [str(i) for i in best.tolist()]
    torch.testing.assert_close(torch.tensor(panel["values"][-1]), probabilities, atol=1e-5, rtol=0)


def test_scores_match_the_analysis() -> None:
    run = lm()
    panel = run.look("abcdef").views[0].panels[-1]
    scores = head_scores(run.model, torch.tensor([run.encode("abcdef")]))
    induction = induction_scores(run.model, INDUCTION, batch=2)
    assert panel["columns"][-1] == "induction"
    for row, one in zip(panel["rows"], scores, strict=True):
        assert row[:2] == [one.name, str(one.head)]
        measured = induction[one.name, one.head]
        wanted = [one.entropy, one.distance, one.previous, one.itself, one.sink, measured]
        torch.testing.assert_close(torch.tensor(row[2:]), torch.tensor(wanted), atol=1e-4, rtol=0)


def test_heads_of_long_sequences_are_not_scored() -> None:
    x = torch.randn(1, MOST_TOKENS + 1, 1, 4)
    with tap.record_attention() as requests:
        attend(x, x, x, name="decoder.blocks.0.attention")
    assert head_scores_panel(requests) is None and head_scores_panel([]) is None


def test_translators_and_masked_models_have_a_lens_and_classifiers_none() -> None:
    translator = run_untrained.of("transformer", run_untrained.words(), "translate")
    titles = [panel["title"] for panel in translator.look("ab", target="cd").views[0].panels]
    assert titles == ["Logit lens", "Scores of heads"]
