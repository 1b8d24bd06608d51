"""The commands of the pages on fine-tuning run, on tiny directories, and what they export loads in transformers."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from run_tiny import write_chats

from qkv.cli import main
from qkv.data.tokenizers.tokenizer import train
from qkv.io.directories.build import build
from qkv.io.families import preset
from qkv.runs.inference.run import Run

PAGES = {name: Path(__file__).parents[3] / "docs" / f"finetuning-{name}.md" for name in ("laptop", "24gb")}
SHORT = ("training.max_steps=2", "training.eval_every=2", "training.save_every=2", "batching.tokens=512")
TEXTS = ["a fine film", "a bad film", "Ada met Alan", "a long story about a cat", "1 + 1?", "0123456789 is"]
SIZES = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 24, "max_positions": 128}
SECTIONS = {
    (name, task): commands
    for name, page in PAGES.items()
    for task, commands in re.findall(r"^## (\w+)\n.*?^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
}
FAST = {("laptop", "Tag"), ("24gb", "Chat")}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with tiny models of the page's names and the data files that it describes."""
    monkeypatch.chdir(tmp_path)
    tokenizer = train("char", TEXTS)
    vocabulary: dict[str, Any] = {**SIZES, "vocab_size": tokenizer.vocab_size}
    decoder = {key: value for key, value in vocabulary.items() if key != "d_ff"}
    bert = preset("bert-base", **vocabulary, pooler=False, labels=0)  # as the published masked language models
    smollm3 = preset("smollm3-3b", **vocabulary, n_kv_heads=1)
    specs = {
        "bert-large": (bert, "read"),
        "bart-large": (preset("bart-base", **vocabulary), "translate"),
        "smollm3": (smollm3, "continue"),
        "distilbert": (preset("distilbert-base", **vocabulary), "read"),
        "bart": (preset("bart-base", **vocabulary), "translate"),
        "opus-mt": (preset("opus-mt", **vocabulary), "translate"),
        "gpt2": (preset("gpt2", **decoder), "continue"),
    }
    for name, (spec, task) in specs.items():
        Run(build(spec).eval(), tokenizer, task=task).save(name, to="hub")  # type: ignore[arg-type]
    rows = range(40)
    Path("reviews.csv").write_text(
        "text,label\n" + "".join(f"a {'bad' if i % 2 else 'fine'} film {i},{i % 2}\n" for i in rows)
    )
    Path("names.conll").write_text("".join(f"Ada B-PER\nmet O\nAlan{i} B-PER\n\n" for i in rows))
    news = [{"article": f"a long story about a cat {i}", "summary": "a cat"} for i in rows]
    Path("news.jsonl").write_text("".join(json.dumps(row) + "\n" for row in news))
    Path("pairs.tsv").write_text("".join(f"a cat {i}\ta fine cat {i}\n" for i in rows))
    Path("similar.csv").write_text("first,second,score\n" + "".join(f"a cat {i},a film {i},{i % 5}\n" for i in rows))
    write_chats(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_have_six_tasks(page: str) -> None:
    assert [task for name, task in SECTIONS if name == page] == [
        "Classify",
        "Tag",
        "Summarize",
        "Translate",
        "Chat",
        "Embed",
    ]


@pytest.mark.parametrize(
    ("page", "task"), [pytest.param(*key, marks=[] if key in FAST else [pytest.mark.slow]) for key in SECTIONS]
)
def test_the_commands_run_and_the_export_loads(place: Path, page: str, task: str) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    for line in SECTIONS[page, task].splitlines():
        program, command, *arguments = shlex.split(line)
        short = SHORT if command == "train" else ()
        assert program == "qkv" and main([command, *arguments, *short]) == 0, line
    exported = place / "export" / task.lower()
    model, info = transformers.AutoModel.from_pretrained(exported, output_loading_info=True)
    assert not info["mismatched_keys"] and model.config.model_type != "qkv"
