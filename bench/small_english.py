"""`python -m bench small-english BOOKS`: train the language model that comes with the package, and put it there.

BOOKS is a folder of texts (.txt, .txt.gz …) or one such file. The texts are cut into passages; the last ones of each book
are held out. `small_english.yaml` is trained on the others, its weights are rounded to 8 bits, and what is measured of the
result goes into its model card. A run that is already in WORK is not trained again; `--resume` continues an unfinished one.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import qkv
from qkv.data.files.encodings import open_text
from qkv.io.directories.layout import RunState
from qkv.io.directories.locate import SHIPPED, SMALL_ENGLISH
from qkv.look.analysis.head_scores import head_scores, induction_scores
from qkv.runs.evaluate.evaluate import evaluate_run

from . import machine

RECIPE = Path(__file__).with_name("small_english.yaml")
CARD = Path(__file__).with_name("small_english.md")
FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json")
LENGTH = 900  # characters of a passage, after which it ends with its sentence
HELD_OUT = {"train": 0.96, "validation": 0.98, "test": 1.0}  # where the part of a book ends
SHOWN = 4  # heads that the card names
SEEN = 0.1  # the induction score from which a head is called one
SENTENCES = re.compile(r"""(?<=[.!?]) (?=["'(A-Z])|(?<=[.!?]["')]) (?=["'(A-Z])""")


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench small-english", description=__doc__)
    parser.add_argument("books", type=Path, help="a folder of texts, or one")
    parser.add_argument("--work", type=Path, default=Path("runs/small-english"), help="where the run is trained")
    parser.add_argument("--out", type=Path, default=SHIPPED / SMALL_ENGLISH, help="where the model is put")
    parser.add_argument("--resume", action="store_true", help="continue an unfinished run")
    parser.add_argument("settings", nargs="*", help="settings of the recipe to change, such as training.max_time=600")
    given = parser.parse_intermixed_args(words)
    texts = write_texts(books(given.books), given.work / "texts")
    run = trained(given.work / "run", texts, given.settings, given.resume)
    small = replace(run.quantize("int8", embeddings=True, head=True), recipe=None)
    saved = small.save(given.work / SMALL_ENGLISH, "qkv")
    given.out.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copyfile(saved / name, given.out / name)
    shutil.copyfile(RECIPE, given.out / "training.yaml")
    found = measured(run, qkv.load(given.out, "cpu"), texts)
    (given.out / "README.md").write_text(card(found), encoding="utf-8")
    print(json.dumps(found, indent=1))
    return 0


def books(path: Path) -> list[Path]:
    """The texts of a folder in the order of their names, without a note on their source; or the one of a file."""
    found = [text for text in sorted(path.glob("*.txt*")) if text.stem != "SOURCE"] if path.is_dir() else [path]
    if not found:
        raise SystemExit(f"there is no text in {path}: give a folder with files such as book.txt or book.txt.gz")
    return found


def plain(text: str) -> str:
    """A text on one line, with ASCII's quotation marks and dashes, without marks of emphasis and notes of its edition."""
    for signs, sign in ("“”", '"'), ("‘’", "'"):
        text = re.sub(f"[{signs}]", sign, text)
    text = text.replace("—", "--").replace("_", "")
    text = re.sub(r"(?m)^(Produced by|Source: http|Reformatted line).*?(  |$)", "", text)
    text = re.sub(r"\n *([\"')]+)(?=\s|$)", r"\1", text)  # a closing mark that was torn off its sentence
    text = re.sub(r"\n *([.,;:!?])", r"\1", text)
    text = re.sub(r"(?<=[^\s-])- +|(?<=\S) +- +|(?<=\n) *- +", "--", text)  # hyphens that are dashes
    return re.sub(r"\s+", " ", re.sub(r"\*[\s*]*", " ", text)).strip()


def passages(text: str, length: int = LENGTH) -> list[str]:
    """Whole sentences in their order, joined until a passage has `length` characters."""
    found, passage = [], ""
    for sentence in SENTENCES.split(text):
        passage = f"{passage} {sentence}" if passage else sentence
        if len(passage) >= length:
            found.append(passage)
            passage = ""
    return [*found, passage] if passage else found


def write_texts(paths: Iterable[Path], folder: Path) -> dict[str, Path]:
    """Write the passages of books, one a line, as files for training, validation and test."""
    parts: dict[str, list[str]] = {name: [] for name in HELD_OUT}
    for path in paths:
        cut = passages(plain(bytes(open_text(path)[:]).decode("utf-8")))
        start = 0
        for name, end in HELD_OUT.items():
            parts[name] += cut[start : round(end * len(cut))]
            start = round(end * len(cut))
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in parts.items():
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return {name: folder / f"{name}.txt" for name in parts}


def trained(out: Path, texts: dict[str, Path], settings: list[str], resume: bool) -> qkv.Run:
    """The run in `out`, trained if it isn't yet."""
    if RunState.of(out) is RunState.FINISHED:
        return qkv.load(out, "cpu")
    paths = {"data.path": "train", "data.validation_path": "validation", "data.test_path": "test"}
    changes: dict[str, Any] = {key: str(texts[name]) for key, name in paths.items()}
    changes |= dict(setting.split("=", 1) for setting in settings)
    return qkv.train(RECIPE, out, changes=changes, resume=resume, device="cpu")


def measured(run: qkv.Run, small: qkv.Run, texts: dict[str, Path]) -> dict[str, Any]:
    """Quality of the run and of its rounded copy on held-out passages, its heads, and how it was trained."""
    assert run.path is not None and small.path is not None
    records = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    last = [record for record in records if record["type"] == "train"][-1]
    before = evaluate_run(run, "test").metrics
    after = evaluate_run(replace(small, recipe=run.recipe), "test").metrics
    return {
        **machine.stamp(),
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "bytes": sum((small.path / name).stat().st_size for name in FILES),
        "characters": len(texts["train"].read_text(encoding="utf-8")),
        "steps": last["step"],
        "tokens": last["tokens"],
        "minutes": last["elapsed"] / 60,
        "before": before,
        "after": after,
        "heads": heads(small, texts["test"].read_text(encoding="utf-8").splitlines()),
    }


def heads(run: qkv.Run, lines: list[str], count: int = 16) -> dict[str, dict[str, float]]:
    """For every head, the mean of its scores over the first tokens of held-out passages, and its induction score."""
    totals: dict[str, dict[str, float]] = {}
    induction = induction_scores(run.model, length=64)
    import torch

    lines = lines[:: max(1, len(lines) // count)][:count]
    for line in lines:
        ids = torch.tensor([run.encode(line)[:128]])
        for score in head_scores(run.model, ids):
            layer = score.name.split(".")[2]
            entry = totals.setdefault(f"{layer}.{score.head}", {"induction": induction[score.name, score.head]})
            for what in ("previous", "sink", "distance"):
                entry[what] = entry.get(what, 0.0) + float(getattr(score, what) or 0.0) / len(lines)
    return totals


def _induction(scores: dict[str, float]) -> float:
    return scores["induction"]


def card(found: dict[str, Any]) -> str:
    """The model card: `small_english.md` with what was measured."""

    def best(what: str) -> str:
        named = sorted(found["heads"].items(), key=lambda item: -item[1][what])[:SHOWN]
        return ", ".join(f"{name} ({scores[what]:.2f})" for name, scores in named)

    values = {
        "parameters": f"{found['parameters']:,}",
        "megabytes": f"{found['bytes'] / 1e6:.1f}",
        "characters": f"{found['characters'] / 1e6:.1f}",
        "steps": f"{found['steps']:,}",
        "tokens": f"{found['tokens'] / 1e6:.1f}",
        "minutes": f"{found['minutes']:.0f}",
        "date": found["date"],
        "processor": f"{found['machine']['cores']} cores of an {found['machine']['processor']}",
        "torch": found["versions"]["torch"],
        "previous": best("previous"),
        "induction": best("induction")
        if max(map(_induction, found["heads"].values())) > SEEN
        else "none has learned this",
        "sink": best("sink"),
    }
    for name in ("before", "after"):
        values |= {f"{name}_{key}": f"{found[name][key]:.2f}" for key in ("loss", "perplexity")}
        values[f"{name}_bits"] = f"{found[name]['bits_per_byte']:.3f}"
    return CARD.read_text(encoding="utf-8").format(**values)
