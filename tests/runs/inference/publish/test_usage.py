"""The code of a model card: it runs, in qkv and in transformers."""

from __future__ import annotations

import ast
import json
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
    "text2text-generation": lambda: of("t5-small", words(), "translate", d_head=8),
    "fill-mask": lambda: bert_wide({}),
    "text-classification": lambda: bert_wide({"head": qkv.SequenceClassifier(labels=3), "classification_head": None}),
    "token-classification": lambda: bert_wide({"head": qkv.TokenClassifier(labels=3), "classification_head": None}),
}

GENERATING = ("text-generation", "ALiBi", "text2text-generation", "translation")


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
    folder = run.save("published", to="hub")
    if kind in GENERATING:  # untrained models would end at once, and each of the two has a longest output of its own
        config = json.loads((folder / "generation_config.json").read_text())
        lengths = {"min_new_tokens": 6, "max_new_tokens": 8}
        (folder / "generation_config.json").write_text(json.dumps({**config, **lengths}))
    ours, theirs = code((folder / "README.md").read_text())
    said = []
    for block in (ours, theirs):
        exec(compile(block, "README.md", "exec"), {})
        said.append(capsys.readouterr().out)
    assert all(said)
    if kind in GENERATING:  # greedily
        mine, (other,) = said[0].strip(), ast.literal_eval(said[1])
        assert mine == other.removeprefix(EXAMPLE).strip()
        assert mine or kind == "translation"  # whose run was trained for four steps, and writes special tokens alone


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
