from __future__ import annotations

from pathlib import Path

import pytest
import torch

from qkv.runs.inference.run import Run, load

TEXTS = ["a b c d e f", "x", "g h i", "p q"]


@pytest.fixture(scope="module")
def run(trained: Path) -> Run:
    return load(trained, device="cpu")


@pytest.fixture(scope="module")
def lm(trained_lm: Path) -> Run:
    return load(trained_lm, device="cpu")


def test_each_text_gets_what_it_gets_alone(run: Run, lm: Run) -> None:
    assert run.generate(TEXTS) == [run.generate([text])[0] for text in TEXTS]
    prompts = ["the cat", "the dog is 5", "t"]
    assert lm.generate(prompts, seed=None) == [lm.generate([text])[0] for text in prompts]
    for scored, text in zip(run.score(TEXTS, TEXTS), TEXTS, strict=True):
        alone = run.score([text], [text])[0]
        assert scored.tokens == alone.tokens
        assert scored.log_probs == pytest.approx(alone.log_probs, abs=1e-5)
    for vector, text in zip(run.embed(TEXTS), TEXTS, strict=True):
        assert torch.allclose(vector, run.embed([text])[0], atol=1e-5)


def test_n_best_are_lists_and_samples_repeat_with_a_seed(run: Run) -> None:
    best = run.generate(TEXTS, num_beams=3, num_samples=2)
    assert [len(outputs) for outputs in best] == [2] * len(TEXTS)
    assert [outputs[0] for outputs in best] == run.generate(TEXTS, num_beams=3)
    again = [run.generate(TEXTS, temperature=1.0, seed=3) for _ in range(2)]
    assert again[0] == again[1] != run.generate(TEXTS, temperature=1.0, seed=4)


def test_scores_come_with_tokens(run: Run) -> None:
    output = run.outputs(["a b"], scores=True)[0][0]
    assert output.log_probs is not None and len(output.log_probs) == len(output.tokens)
    assert output.ended in ("eos", "length")
    assert run.outputs(["a b"])[0][0].log_probs is None


def test_an_output_ends_before_a_stop_text(lm: Run) -> None:
    whole = lm.generate(["the "], max_new_tokens=12)[0]
    assert isinstance(whole, str) and len(whole) > 3
    stop = whole[2:4]
    assert lm.generate(["the "], max_new_tokens=12, stop=[stop]) == [whole[: whole.index(stop)]]
    assert lm.generate(["the "], max_new_tokens=12, stop=stop) == [
        whole[: whole.index(stop)]
    ]  # one text, not two letters
    with pytest.raises(ValueError, match="a stop string is empty"):
        lm.generate(["the "], stop=[""])


@pytest.mark.parametrize("stop", [(), ("zzzz",), None])
def test_a_stream_tells_the_same_text_piece_by_piece(stop: tuple[str, ...] | None, lm: Run, run: Run) -> None:
    for model, text in ((lm, "the cat"), (run, "a b c")):
        whole = model.generate([text], max_new_tokens=12)[0]
        assert isinstance(whole, str)
        stops = (whole[3:5],) if stop is None and len(whole) > 5 else stop or ()
        pieces: list[str] = []
        model.stream(text, pieces.append, model.settings(max_new_tokens=12), stop=stops)
        assert ["".join(pieces)] == model.generate([text], max_new_tokens=12, stop=stops)


def test_a_language_model_scores_running_text_and_what_follows_it(lm: Run) -> None:
    whole = lm.score(["the cat"])[0]
    assert whole.log_likelihood == pytest.approx(sum(whole.log_probs))
    assert len(whole.tokens) == len(whole.log_probs) == len(lm.tokenizer.encode("the cat")) - 1
    assert lm.score(["the"], [" cat"])[0].tokens == tuple(lm.tokenizer.tokens(lm.tokenizer.encode(" cat")))


def test_a_translator_scores_targets_with_their_end(run: Run) -> None:
    assert run.score(["a b"], ["b a"])[0].tokens[-1] == "</s>"
    with pytest.raises(ValueError, match="give a target for each text"):
        run.score(["a b"])
    with pytest.raises(ValueError, match=r"inputs and targets differ in number \(1 and 2\)"):
        run.score(["a"], ["b", "c"])


def test_an_empty_text_is_an_error(lm: Run) -> None:
    with pytest.raises(ValueError, match="empty"):
        lm.generate([""])


def test_a_draft_run_and_look_up_change_no_output(run: Run, lm: Run) -> None:
    for model, texts in ((run, TEXTS), (lm, ["the cat is the cat", "the dog"])):
        plain = model.generate(texts, max_new_tokens=12)
        assert model.generate(texts, max_new_tokens=12, draft=model) == plain
        assert model.generate(texts, max_new_tokens=12, speculate="lookup") == plain
        output = model.outputs(texts, model.settings(max_new_tokens=12), draft=model)[0][0]
        assert output.acceptance is not None and output.acceptance.accepted == output.acceptance.proposed
        assert model.outputs(texts)[0][0].acceptance is None
    with pytest.raises(ValueError, match=r"has another tokenizer than .*: .*; give a draft with the same tokenizer"):
        lm.generate(["the"], draft=run)
