"""Scores of given texts equal the scores of the same tokens when generated."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import tokenizers
import torch
from hub_pairs import LIBRARY, PAIRS, save_hub_pair
from tokenizers import models, pre_tokenizers

from qkv.data.tokenizers.tokenizer import Tokenizer
from qkv.data.tokenizers.tokenizer_json import TokenizerExtra
from qkv.generation import generate
from qkv.runs.inference.loaded import LoadedModel
from qkv.runs.inference.run import load
from qkv.runs.inference.score import score
from qkv.runs.train.pretrained import tokenizer_of


def generated(run: LoadedModel, source: str, wanted: list[int]) -> list[float]:
    """The log-probabilities that generation reports for an output that it is made to write."""

    def only(ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        allowed = torch.full_like(logits, -torch.inf)
        allowed[:, wanted[ids.shape[1] - 1]] = 0.0
        return allowed

    found = generate(
        run.model,
        [run.encode(source)],
        bos_id=run.start,
        eos_id=run.ends,
        max_new_tokens=len(wanted),
        processors=[only],
        scores=True,
    )
    assert found.sequences == [[wanted]] and found.log_probs is not None
    return found.log_probs[0][0]


@pytest.mark.parametrize("name", LIBRARY)
def test_a_target_has_what_stands_around_it(name: str, tmp_path: Path) -> None:
    model, tokenizer = save_hub_pair(name, tmp_path / "base")
    run = load(tmp_path / "base", "cpu")
    tuned = LoadedModel(
        run.model, tokenizer_of(str(tmp_path / "base")), task="translate"
    )  # as training continues with it
    for source, target in PAIRS:
        (found,) = run.score([source], [target])
        wanted = tokenizer(text_target=target)["input_ids"]
        assert found.tokens == tuple(run.tokenizer.tokens(wanted))
        assert list(found.log_probs) == pytest.approx(generated(run, source, wanted), abs=1e-5)
        with torch.no_grad():
            loss = model(**tokenizer(source, return_tensors="pt"), labels=torch.tensor([wanted])).loss
        assert found.log_likelihood == pytest.approx(-loss.item() * len(wanted), rel=1e-4)
        assert score(tuned, [tuned.encode(source)], [target]) == [found]


def test_the_token_that_generation_has_to_begin_with_is_scored_too(tmp_path: Path) -> None:
    save_hub_pair("t5", tmp_path / "base")
    plain = load(tmp_path / "base", "cpu")
    assert plain.origin is not None and plain.ids is not None
    forced = replace(plain, origin=replace(plain.origin, ids=replace(plain.ids, forced=(5, None))))
    (found,) = score(forced, [forced.encode("a b")], ["b a"])
    assert found.tokens == tuple(plain.tokenizer.tokens([5, *plain.encode("b a")]))
    again = score(forced, [forced.encode("a b")], [plain.tokenizer.decode([5]) + " b a"])
    assert again == [found]


def test_targets_are_cut_as_their_side_is(trained: Path) -> None:
    words = {word: i for i, word in enumerate(["<pad>", "<unk>", "<s>", "</s>", "a", "b"])}
    sides = []
    for cut in (pre_tokenizers.WhitespaceSplit(), pre_tokenizers.CharDelimiterSplit("-")):
        raw = tokenizers.Tokenizer(models.WordLevel(words, unk_token="<unk>"))
        raw.pre_tokenizer = cut
        raw.add_special_tokens(["<pad>", "<unk>", "<s>", "</s>"])
        sides.append(raw)
    tokenizer = Tokenizer(sides[0], TokenizerExtra(target=json.loads(sides[1].to_str())))
    run = LoadedModel(load(trained, "cpu").model, tokenizer, task="translate")
    assert score(run, [run.encode("a b")], ["b-a"])[0].tokens == ("b", "a", "</s>")


def test_perplexity_is_infinite_where_it_overflows_and_nan_without_tokens() -> None:
    from qkv.generation.log_likelihood import Scores
    from qkv.runs.inference.score import _score

    assert _score(["a"], [-1e4]).perplexity == float("inf") and Scores([[-800.0, -700.0]]).perplexity == float("inf")
    assert math.isnan(_score([], []).perplexity) and math.isnan(Scores([]).perplexity)
    assert _score(["a", "b"], [-1.0, -2.0]).perplexity == pytest.approx(math.exp(1.5))
