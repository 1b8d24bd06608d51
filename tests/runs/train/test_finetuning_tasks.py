"""The commands of docs/finetuning-tasks.md run, on tiny directories, what they export loads in transformers, and the
table on a 7B model is what its commands answer."""

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

PAGE = (Path(__file__).parents[3] / "docs" / "finetuning-tasks.md").read_text(encoding="utf-8")
SHORT = ("training.max_steps=2", "training.eval_every=2", "training.save_every=2", "batching.tokens=512")
TEXTS = ["a fine film", "a bad film", "Ada met Alan", "a long story about a cat", "1 + 1?", "0123456789 is"]
SIZES = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 24, "max_positions": 128}
TASKS = ["Classify", "Tag", "Summarize", "Translate", "Chat", "Embed"]
SECTIONS: dict[tuple[str, str], list[str]] = {}  # commands by memory and task
for _task, _text in re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S):
    _small, _large = (block.splitlines() for block in re.findall(r"^```sh\n(.*?)^```", _text, re.M | re.S))
    SECTIONS["16 GB", _task] = _small
    SECTIONS["24 GB", _task] = [*_large, *_small[1:]]  # another model, then the same uses of it
FAST = {("16 GB", "Tag"), ("24 GB", "Chat")}
NUMBER = r" ([\d.]+)(?: GiB)? \|"
ROWS = re.findall(rf"^\| `qkv (cost fit [^`]+)` \|{NUMBER * 4}$", PAGE, re.MULTILINE)


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


@pytest.mark.parametrize("memory", ["16 GB", "24 GB"])
def test_the_page_has_six_tasks(memory: str) -> None:
    assert [task for size, task in SECTIONS if size == memory] == TASKS


@pytest.mark.parametrize(
    ("memory", "task"), [pytest.param(*key, marks=[] if key in FAST else [pytest.mark.slow]) for key in SECTIONS]
)
def test_the_commands_run_and_the_export_loads(place: Path, memory: str, task: str) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    for line in SECTIONS[memory, task]:
        program, command, *arguments = shlex.split(line)
        short = SHORT if command == "train" else ()
        assert program == "qkv" and main([command, *arguments, *short]) == 0, line
    exported = place / "export" / task.lower()
    model, info = transformers.AutoModel.from_pretrained(exported, output_loading_info=True)
    assert not info["mismatched_keys"] and model.config.model_type != "qkv"


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_is_what_its_command_answers(row: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    memory = {}
    for rows in (1, 8):
        assert main([*row[0].split(), "--rows", str(rows), "--json"]) == 0
        for one in json.loads(capsys.readouterr().out)["settings"]:
            memory[rows, one["recompute"]] = one["memory"]
    sizes = [
        memory[1, "none"]["weights"],
        *(memory[which]["peak"] for which in ((1, "none"), (1, "blocks"), (8, "blocks"))),
    ]
    assert [f"{size / 2**30:.1f}" for size in sizes] == list(row[1:])


def test_the_table_has_three_models_of_two_lengths() -> None:
    assert len(ROWS) == 6 and len({row[0].split()[2] for row in ROWS}) == 3


@pytest.mark.lab
def test_a_7b_model_in_fp32_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "fit", "qwen2-7b", "--adapter", "lora", "--memory", "24GB"]) == 2
    assert "28.4 GiB of it the frozen weights in fp32" in capsys.readouterr().err
