"""`python -m bench start`: from the start of a process to the first token of GPT-2 124 M, beside `import torch`.

The model is a directory in the Hub's format with random weights and a byte-level BPE tokenizer of 50,257 entries, made
here on first use. Each reading is a separate process, `qkv generate DIR TEXT --max-new-tokens 1`, with its files in
the system's cache, from its start to the first byte that it prints. Processes that import PyTorch and print take turns
with it.

`--train RECIPE …` prints the seconds and CPU seconds from `qkv train RECIPE` to its first step instead, and keeps nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from safetensors.torch import load_file, save_file

from . import machine
from .contenders.loading import FOLDER
from .page_tables import keep

RESULT = Path(__file__).resolve().parent / "results" / "start" / "first-token.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
ENTRIES = 50257
ASKED, ASKED_OVER_TORCH = 2.0, 0.5  # seconds
TEXT = "The first token of a text comes after all of this"
TORCH, OURS = "import torch", "qkv generate"


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="a tiny model, one round, nothing kept")
    parser.add_argument("--train", nargs="+", metavar="RECIPE", help="time trainings to their first step")
    given = parser.parse_args(words)
    if given.train:
        print(steps_table({recipe: [first_step(recipe) for _ in range(given.rounds)] for recipe in given.train}))
        return 0
    folder = directory(given.quick)
    commands = {
        TORCH: [sys.executable, "-c", "import torch; print(1)"],
        OURS: [sys.executable, "-m", "qkv", "generate", str(folder), TEXT, "--max-new-tokens", "1"],
    }
    load = machine.load()
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(1 + (1 if given.quick else given.rounds)):
        for name, command in commands.items():
            seconds = until_output(command)
            if number:  # the first turn brings the files into the system's cache
                times[name].append(seconds)
    over = [ours - torch for ours, torch in zip(times[OURS], times[TORCH], strict=True)]
    result = {
        **machine.stamp(),
        "load_before": load,
        "rounds": len(over),
        "rows": [{"what": name, "seconds": [round(s, 3) for s in each]} for name, each in times.items()],
        "over_torch": [round(s, 3) for s in over],
    }
    print(table(result))
    if not given.quick:
        RESULT.parent.mkdir(exist_ok=True)
        keep(result, RESULT, PAGE, "start", table(result))
    return 0


def until_output(command: list[str]) -> float:
    """Seconds from the start of a process to the first byte that it writes."""
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=_environment()) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        seconds = time.perf_counter() - begin
        process.stdout.read()
    if process.returncode:
        raise SystemExit(f"{command} ended with status {process.returncode}")
    return seconds


def first_step(recipe: str) -> tuple[float, float]:
    """Seconds, and CPU seconds of the process, from the start of `qkv train` to the line that it prints at step 1."""
    with tempfile.TemporaryDirectory() as folder:
        settings = ["training.log_every=1", "--device", "cpu", "--out", str(Path(folder) / "run")]
        command = [sys.executable, "-m", "qkv", "train", recipe, *settings]
        begin = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=_environment(), text=True) as process:
            assert process.stdout is not None
            said = next((line for line in process.stdout if line.startswith("step 1 ")), "")
            seconds, used = time.perf_counter() - begin, psutil.Process(process.pid).cpu_times()
            process.kill()
        if not said:
            raise SystemExit(f"{command} ended before its first step")
    return seconds, used.user + used.system + used.children_user + used.children_system


def steps_table(times: dict[str, list[tuple[float, float]]]) -> str:
    """The table in Markdown: the smallest readings of each recipe, because other programs only add to them."""
    rows = [
        f"| {recipe} | {min(s for s, _ in each):.2f} | {min(c for _, c in each):.2f} |"
        for recipe, each in times.items()
    ]
    return "\n".join(["| `qkv train` to step 1 | s | CPU s |", "|---|---:|---:|", *rows])


def _environment() -> dict[str, str]:
    """The environment, with bytecode kept, as it is where packages are installed."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"HF_HUB_OFFLINE": "1"}


def directory(tiny: bool = False) -> Path:
    """The directory of the Hub of a GPT-2 with random weights; it is made if it isn't there yet."""
    folder = FOLDER / ("gpt2-tiny" if tiny else "gpt2-124m")
    if not (folder / "config.json").exists():
        from qkv.io.directories.build import build
        from qkv.io.families import FAMILIES
        from qkv.runs.inference.run import Run

        sizes = {"n_embd": 64, "n_layer": 2, "n_head": 2, "vocab_size": 512} if tiny else {"vocab_size": ENTRIES}
        spec = FAMILIES["gpt2"].spec({"model_type": "gpt2", "n_positions": 1024, **sizes})
        Run(build(spec, seed=0), _tokenizer(sizes["vocab_size"]), task="continue").save(folder, to="hub")
        _as_others_write_it(folder)
    return folder


def _as_others_write_it(folder: Path) -> None:
    """Leave out what only qkv writes into a directory of the Hub: its key in the configuration, checksums of weights."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k != "qkv"}, indent=2))
    weights = folder / "model.safetensors"
    save_file({name: tensor.clone() for name, tensor in load_file(weights).items()}, weights, {"format": "pt"})


def _tokenizer(entries: int) -> Any:
    """A byte-level BPE trained on words of random syllables, because what is read, not what it says, takes time."""
    draw = random.Random(0)
    letters = ("bcdfghjklmnpqrstvwxz", "aeiouy", "lmnrst")
    syllables = ["".join(map(draw.choice, letters[: draw.choice((2, 3))])) for _ in range(900)]
    words = ["".join(draw.choices(syllables, k=draw.choice((1, 2, 2, 3, 4)))) for _ in range(entries * 3)]
    from qkv.data.tokenizers.tokenizer import Tokenizer
    from qkv.data.tokenizers.training.bpe import BPE

    lines = [" ".join(words[i : i + 50]) for i in range(0, len(words), 50)]
    return Tokenizer(BPE(vocab_size=entries, min_frequency=1).train(lines))


def table(result: dict[str, Any]) -> str:
    """The table in Markdown, with what it was measured on."""
    medians = {row["what"]: median(row["seconds"]) for row in result["rows"]}
    over, where = median(result["over_torch"]), result["machine"]
    met = {True: "reached", False: "**not reached**"}
    return "\n".join(
        [
            "| process | s | goal |",
            "|---|---:|---|",
            f"| `{TORCH}` | {medians[TORCH]:.2f} | |",
            f"| `qkv generate`, one token | {medians[OURS]:.2f} | ≤ {ASKED}: {met[medians[OURS] <= ASKED]} |",
            f"| the difference | {over:.2f} | ≤ {ASKED_OVER_TORCH}: {met[over <= ASKED_OVER_TORCH]} |",
            "",
            f"Measured by `python -m bench start` on {result['date']}: {where['processor']} "
            f"({', '.join(where['instructions'])}), {where['cores']} cores, Python {result['versions']['python']}, PyTorch "
            f"{result['versions']['torch']}, commit {result['code']['commit']}; medians of {result['rounds']} processes "
            f"of each kind, run in turns, from process start to first output; load average {result['load_before']} before.",
        ]
    )
