"""Metrics of generated text. ROUGE agrees with Google's rouge-score 0.1.2, whose numbers are in rouge_golden.json
(make_rouge_golden.py)."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF, TER

from qkv.core.metrics import text
from qkv.core.metrics.text import (
    _common,
    bits_per_byte,
    bleu,
    character_error_rate,
    chrf,
    chrf_plus_plus,
    exact_match,
    output_metrics,
    perplexity,
    rouge,
    sacre_bleu,
    ter,
    word_error_rate,
)
from qkv.runs.recipes.evaluation import ROUGE

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("rouge_golden.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["output"][:20])
@pytest.mark.parametrize("what", ROUGE)
def test_a_text_scores_as_rouge_score_has_it(case: dict[str, Any], what: str) -> None:
    assert rouge([case["output"]], [case["truth"]], what).value == pytest.approx(100 * case[what], abs=1e-9)


@pytest.mark.parametrize("what", ROUGE)
def test_several_texts_weigh_alike(what: str) -> None:
    outputs, truths = ([case[side] for case in CASES] for side in ("output", "truth"))
    assert rouge(outputs, truths, what).value == pytest.approx(100 * sum(c[what] for c in CASES) / len(CASES))


def slow(a: str, b: str) -> int:
    if not a or not b:
        return 0
    return 1 + slow(a[1:], b[1:]) if a[0] == b[0] else max(slow(a[1:], b), slow(a, b[1:]))


@given(st.text("abc", max_size=7), st.text("abc", max_size=7))
def test_the_longest_common_subsequence(a: str, b: str) -> None:
    assert _common(list(a), list(b)) == slow(a, b)


def test_exact_match_ignores_space_around_a_text() -> None:
    assert exact_match([" a b\n", "a  b", "A b"], ["a b"] * 3).value == pytest.approx(1 / 3)


def test_bleu_and_chrf_go_from_0_to_100() -> None:
    text = "the quick brown fox jumps over the lazy dog"
    for metric in (bleu, chrf):
        assert metric([text], [text]).value == pytest.approx(100)
        assert metric(["0 1 2 3"], [text]).value == pytest.approx(0)


def test_error_rates_count_edits_over_the_truths() -> None:
    assert word_error_rate(["a b x", "d"], ["a b c", "d e"]).value == pytest.approx(2 / 5)
    assert word_error_rate(["a b c"], ["a"]).value == 2
    assert character_error_rate(["abd"], ["abc"]).value == pytest.approx(1 / 3)


def test_perplexity_and_bits_per_byte_are_of_the_mean() -> None:
    assert perplexity(3 * math.log(5), 3) == pytest.approx(5) and perplexity(1e6, 1) == math.inf
    assert bits_per_byte(8 * math.log(2), 4) == pytest.approx(2)


OUTPUTS = ["the cat is on a mat", "it rains a lot", "a dog"]
REFERENCES = [["the cat sat on the mat", "the cat is on a mat"], ["it rains here"], ["a dog", "the dog", "one dog"]]
STREAMS = [
    ["the cat sat on the mat", "it rains here", "a dog"],
    ["the cat is on a mat", None, "the dog"],
    [None, None, "one dog"],
]


@pytest.mark.parametrize(
    ("metric", "theirs"),
    [(bleu, BLEU()), (chrf, CHRF()), (chrf_plus_plus, CHRF(word_order=2)), (ter, TER())],
    ids=["bleu", "chrf", "chrf++", "ter"],
)
def test_several_references_score_as_by_sacrebleu(metric: Any, theirs: Any) -> None:
    found = metric(OUTPUTS, REFERENCES)
    assert found.value == theirs.corpus_score(OUTPUTS, STREAMS).score > 0
    assert found.details == str(theirs.get_signature()) and "nrefs:var" in found.details
    one = metric(OUTPUTS, STREAMS[0])
    assert one.value == theirs.corpus_score(OUTPUTS, STREAMS[:1]).score != found.value and "nrefs:1" in one.details


@pytest.mark.parametrize("tokenize", ["13a", "intl", "char", "zh", "none"])
def test_bleu_takes_the_tokenizers_of_sacrebleu(tokenize: str) -> None:
    found = bleu(OUTPUTS, REFERENCES, tokenize)
    assert found.value == BLEU(tokenize=tokenize).corpus_score(OUTPUTS, STREAMS).score
    assert f"tok:{tokenize}" in found.details


@pytest.mark.parametrize(("tokenize", "extra"), [("ja-mecab", "ja"), ("ko-mecab", "ko"), ("flores200", "spm")])
def test_a_tokenizer_whose_library_is_missing_names_its_extra(
    tokenize: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tokenizer_ja_mecab", "tokenizer_ko_mecab"):
        monkeypatch.setattr(f"sacrebleu.tokenizers.{name}.MeCab", None)
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(ValueError, match=rf"bleu_tokenize={tokenize} needs .* pip install 'qkv\[{extra}\]'"):
        sacre_bleu.__wrapped__(tokenize)


def test_a_model_that_cannot_be_downloaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*args: Any, **settings: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr("sacrebleu.metrics.BLEU", offline)
    with pytest.raises(ValueError, match=r"needs a model that sacreBLEU couldn't download \(no network\)"):
        sacre_bleu.__wrapped__("flores200")


def test_the_best_of_several_references_counts() -> None:
    assert exact_match(OUTPUTS, REFERENCES).value == pytest.approx(2 / 3)
    assert exact_match(["the dog"], [REFERENCES[2]]) == (1, "nrefs:3|n:1|strip:yes")
    assert rouge(["a dog"], [["a cat", "a dog"]], "rouge1").value == 100
    assert word_error_rate(["the dog"], [["a dog", "the dog"]]).value == 1 / 2  # of the first


def test_metrics_by_name_of_single_sentences() -> None:
    found = output_metrics(["bleu", "exact-match", "perplexity"], ["a dog"], [["a dog", "x"]], sentence=True)
    assert set(found) == {"bleu", "exact_match"} and found["exact_match"].value == 1
    assert found["bleu"].value == pytest.approx(
        BLEU(effective_order=True).sentence_score("a dog", ["a dog", "x"]).score
    )


@pytest.mark.parametrize("name", text.OUTPUT_METRICS)
def test_outputs_and_references_belong_together_one_by_one(name: str) -> None:
    for outputs, references in ((["a b c d", "e"], ["a b c d"]), (["a b c d"], ["a b c d", "e"])):
        with pytest.raises(ValueError, match="belong together one by one, and there are"):
            text.OUTPUT_METRICS[name](outputs, references)
    with pytest.raises(ValueError, match="there are no outputs and references"):
        text.OUTPUT_METRICS[name]([], [])


def test_names_that_a_library_does_not_know_are_refused() -> None:
    with pytest.raises(ValueError, match="sacreBLEU has no tokenizer '13b'; did you mean '13a'"):
        text.bleu(["a"], ["a"], tokenize="13b")
    with pytest.raises(ValueError, match="there is no ROUGE 'rouge3'"):
        text.rouge(["a"], ["a"], "rouge3")
