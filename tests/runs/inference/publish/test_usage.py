"""The code of a model card: it runs, in qkv and in transformers."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_untrained import of, vit, words

import qkv
from qkv.nn.models.heads.sequence import SentenceVector
from qkv.nn.models.heads.text import Span
from qkv.runs.inference.publish.usage import EXAMPLE, pipeline_of
from qkv.runs.inference.run import Run, load


def code(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


RUNS: dict[str, Callable[[], Run]] = {
    "text-generation": lambda: of("gpt2", words(), "continue", max_positions=512),
    "ALiBi": lambda: of("llama", words(), "continue", {"decoder.position": qkv.ALiBi()}, max_positions=512),
    "fill-mask": lambda: bert_wide({}),
    "text-classification": lambda: bert_wide({"head": qkv.SequenceClassifier(labels=3), "classification_head": None}),
    "token-classification": lambda: bert_wide({"head": qkv.TokenClassifier(labels=3), "classification_head": None}),
}


def bert_wide(changes: dict[str, Any]) -> Run:
    return of("bert-base", words(), "read", changes, max_positions=512)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [*RUNS, "translation"])
def test_the_code_of_a_card_runs(
    kind: str, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = load(trained) if kind == "translation" else RUNS[kind]()
    text = (run.save("published", to="hub") / "README.md").read_text()
    ours, theirs = code(text)
    said = []
    for block in (ours, theirs):
        exec(compile(block, "README.md", "exec"), {})
        said.append(capsys.readouterr().out)
    assert all(said)
    if kind in ("text-generation", "ALiBi", "translation"):  # both decode greedily
        mine, other = said[0].strip(), ast.literal_eval(said[1])[0].removeprefix(EXAMPLE).strip()
        assert mine.startswith(other) or other.startswith(mine)  # each has a longest output of its own
        assert kind != "ALiBi" or (mine and other)  # the other untrained models end at once


KINDS: dict[str, Callable[[], Run]] = {
    **RUNS,
    "sentence-similarity": lambda: bert_wide({"head": SentenceVector(), "classification_head": None}),
    "question-answering": lambda: bert_wide({"head": Span(), "classification_head": None}),
    "feature-extraction": lambda: bert_wide({"head": None}),
    "image-classification": vit,
}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "ALiBi"])
def test_the_hub_has_a_name_for_what_a_model_does(kind: str) -> None:
    assert pipeline_of(KINDS[kind]()) == kind
