"""Ensembles of runs: texts, classes and tags by the mean of probabilities, on the command line too; what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from run_untrained import TINY, bert, of, vit, words

import qkv
from qkv.cli import main
from qkv.data.tokenizers.tokenizer import Tokenizer
from qkv.generation import generate
from qkv.nn.models.ensemble import EnsembleModel
from qkv.nn.models.heads.sequence import SequenceClassifier
from qkv.nn.models.heads.text import TokenClassifier
from qkv.runs.inference.ensemble import _difference
from qkv.runs.inference.run import Run


def other(run: Run, seed: int = 1) -> Run:
    """The same run with other weights."""
    return replace(run, model=qkv.build(run.model.spec, seed=seed).eval())


def translator() -> Run:
    return of("transformer", words(), "translate")


def test_translations_and_scores_are_those_of_the_mean() -> None:
    runs = [translator(), other(translator()), other(translator(), 2)]
    joined = qkv.ensemble(runs, weights=[2, 1, 1])
    for options in ({}, {"num_beams": 3}, {"temperature": 1.0, "seed": 3}):
        direct = generate(
            EnsembleModel([run.model for run in runs], [2, 1, 1]),
            [joined.encode("ab")],
            bos_id=joined.start,
            eos_id=joined.ends,
            max_new_tokens=5,
            **options,  # type: ignore[arg-type]
        )
        text = joined.words.decode(direct.sequences[0][0])
        assert joined.generate("ab", max_new_tokens=5, **options) == text  # type: ignore[arg-type]
    p = [torch.tensor(run.score("ab", "ba").log_probs, dtype=torch.float64).exp() for run in runs]
    expected = (0.5 * p[0] + 0.25 * p[1] + 0.25 * p[2]).log()
    torch.testing.assert_close(torch.tensor(joined.score("ab", "ba").log_probs).double(), expected, atol=1e-5, rtol=0)


def test_classes_tags_and_masks() -> None:
    classifiers = [bert(SequenceClassifier(labels=2)), other(bert(SequenceClassifier(labels=2)))]
    apart = [run.classify("ab").probabilities for run in classifiers]
    joined = qkv.ensemble(classifiers).classify("ab").probabilities
    assert joined == pytest.approx({name: (apart[0][name] + apart[1][name]) / 2 for name in joined}, abs=1e-6)
    taggers = [bert(TokenClassifier(labels=3)), other(bert(TokenClassifier(labels=3)))]
    (told,) = qkv.ensemble(taggers).predict(["ab cd"])
    assert told.text
    masked = of("bert-base", words(), "read", max_positions=32)
    filled = [run.fill("a<mask>", top_k=200).masks[0] for run in (masked, other(masked))]
    first = qkv.ensemble([masked, other(masked)]).fill("a<mask>").masks[0][0]
    halves = [next(one.probability for one in mask if one.token == first.token) for mask in filled]
    assert first.probability == pytest.approx(sum(halves) / 2, abs=1e-6)


def test_runs_that_differ_are_refused() -> None:
    first = replace(translator(), path=Path("runs/a"))
    shuffled = of("transformer", words().without("mask"), "translate")
    smaller = of("transformer", qkv.Tokenizer.from_json(words().to_json().replace('"~"', '"é"')), "translate")
    assert first.tokenizer is not None
    for runs, message in [
        ([first], "at least two runs, not 1"),
        ([first, "runs/b"], "is of runs such as qkv.load"),
        ([first, smaller], "another tokenizer than runs/a: token .* is 'é', not '~'"),
        ([first, of("gpt2", words(), "continue")], "differs from runs/a in use, 'continue' and not 'translate'"),
        ([bert(SequenceClassifier(labels=2)), bert(SequenceClassifier(labels=3))], "differs from this run in classes"),
        ([vit(), bert(SequenceClassifier(labels=3))], "one reads texts and the other does not"),
    ]:
        with pytest.raises(ValueError, match=message):
            qkv.ensemble(runs)  # type: ignore[arg-type]
    assert isinstance(qkv.ensemble([first, shuffled]), Run)  # roles alone don't matter to a translator


def test_what_only_one_run_has_is_refused(tmp_path: Path) -> None:
    joined = qkv.ensemble([translator(), other(translator())])
    assert "the ensemble of this run and this run" in repr(joined)
    for ask in (
        lambda: joined.save(tmp_path / "run"),
        lambda: joined.quantize("int8"),
        lambda: joined.dequantize(),
        lambda: joined.embed("ab"),
        lambda: joined.embed_array(["ab"]),
        lambda: joined.look("ab"),
        lambda: joined.record(),
        lambda: joined.intervene({}),
    ):
        with pytest.raises(ValueError, match=r"an ensemble can't be .*; give one of its runs"):
            ask()
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name, run in {
        "translator": translator(),
        "assistant": of("gpt2", words(), "continue"),
        "classifier": bert(SequenceClassifier(labels=2)),
        "tagger": bert(TokenClassifier(labels=3)),
        "masked": of("bert-base", words(), "read", max_positions=32),
    }.items():
        run.save(folder / name, "qkv")
        other(run).save(folder / f"{name}2", "qkv")
    return folder


@pytest.mark.parametrize(
    ("command", "name", "text"),
    [
        ("translate", "translator", "ab"),
        ("generate", "assistant", "ab"),
        ("score", "translator", "ab\tba"),
        ("classify", "classifier", "ab"),
        ("predict", "tagger", "ab"),
        ("predict", "classifier", "ab"),
        ("fill", "masked", "a<mask>"),
    ],
)
def test_commands_take_several_runs(
    command: str, name: str, text: str, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [str(saved / name), str(saved / f"{name}2")]
    limit = ["--max-new-tokens", "3"] if command in ("translate", "generate") else []

    def told(*arguments: str) -> Any:
        assert main([command, *arguments, text, *limit, "--json"]) == 0
        printed = capsys.readouterr()
        (line,) = printed.out.splitlines()
        return json.loads(line), printed.err

    together, note = told(*runs)
    assert note == "The 2 runs predict together, by the mean of their probabilities.\n"
    assert together[next(iter(together))] == text
    alone, note = told(runs[1])
    assert not note
    heavy = told(*runs, "--ensemble-weights", "1e-9,1", "--ensemble-mode", "log_linear")[0]
    assert _numbers(heavy) == pytest.approx(_numbers(alone), abs=1e-4)
    assert _numbers(together) != pytest.approx(_numbers(alone), abs=1e-4)


def _numbers(value: Any) -> list[float]:
    """All numbers in a JSON value."""
    if isinstance(value, dict | list):
        return [n for one in (value.values() if isinstance(value, dict) else value) for n in _numbers(one)]
    return [value] if isinstance(value, float) else []


def test_only_leading_runs_are_runs(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, short = str(saved / "translator"), ["--max-new-tokens", "2"]
    (tmp_path / "photos").mkdir()
    assert main(["translate", run, str(tmp_path / "photos"), run, *short]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 2 and "predict together" not in printed.err
    assert printed.err.count("is read as a text") == 2
    for options, message in [
        (["ab", "--ensemble-weights", "1,2"], "--ensemble-weights is for several runs"),
        ([run, "ab", "--ensemble-weights", "one,2"], "numbers with commas between them, such as 2,1,1, not 'one,2'"),
        ([run, "ab", "--ensemble-weights", "1,2,3"], "there are 3 weights for 2 models"),
        ([run, "ab", "--ensemble-mode", "mean"], "there is no ensemble mode"),
        ([str(saved / "tagger"), "ab"], "`qkv translate` needs an encoder–decoder"),
    ]:
        assert main(["translate", run, *options, *short]) == 2
        assert message in " ".join(capsys.readouterr().err.split())


def test_different_architectures_translate_together() -> None:
    tokenizer = words()
    deep = qkv.preset("transformer", **{**TINY, "n_layers": 2}, vocab_size=tokenizer.vocab_size)
    recurrent = qkv.preset("rnnsearch", vocab_size=tokenizer.vocab_size, d_e=8, d_h=8, d_s=8)
    runs = [Run(qkv.build(spec).eval(), tokenizer, task="translate") for spec in (deep, recurrent)]
    assert isinstance(qkv.ensemble(runs).generate("ab", max_new_tokens=4, num_beams=2), str)


def test_what_tokenizers_add_to_a_text_is_no_rule_of_splitting() -> None:
    mine = words()
    raw = json.loads(mine.to_json())
    single, pair = (
        [{"Sequence": {"id": "A", "type_id": 0}}],
        [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"],
    )
    raw["post_processor"] = {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": {}}
    exported = Tokenizer.from_json(json.dumps(raw))
    assert _difference(mine, exported) is None and _difference(exported, mine) is None
    raw["normalizer"] = {"type": "Lowercase"}
    assert _difference(mine, Tokenizer.from_json(json.dumps(raw))) == (
        "it has the same tokens but splits texts by other rules"
    )
