"""`python -m bench unigram --peer PYTHON`: training of a unigram tokenizer beside SentencePiece, which that Python has.

Each reading is a separate process, which reads a file and trains on it; only that is timed, not its imports. The two
take turns. SentencePiece keeps texts as they are (no normalization, all characters) and uses every core. A model's
quality is the number of tokens into which it splits texts that were left out, and the nats a character that its most
probable segmentations have.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from . import machine
from .corpora import folder, missing
from .page_tables import keep

RESULT = Path(__file__).resolve().parent / "results" / "unigram" / "sentencepiece.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "tokenizers.md"
SIZE, ASKED = 8000, 1.5
OURS, THEIRS = "qkv", "SentencePiece"
HELD_OUT = 20  # every so many lines is left out

_OURS = """
import json, sys, time
from qkv.data.tokenizers.pipelines import contents
from qkv.data.tokenizers.training.unigram import Unigram
begin = time.perf_counter()
spec = Unigram(vocab_size=int(sys.argv[2]))
model = spec.train(open(sys.argv[1], encoding="utf-8").read().splitlines()).model
seconds = time.perf_counter() - begin
print(json.dumps([seconds, contents(model)["vocab"][len(spec.names):]]))
"""
_THEIRS = """
import json, os, sys, time
import sentencepiece
begin = time.perf_counter()
sentencepiece.SentencePieceTrainer.train(
    input=sys.argv[1], model_prefix=sys.argv[1] + ".model", model_type="unigram", vocab_size=int(sys.argv[2]),
    num_threads=len(os.sched_getaffinity(0)), character_coverage=1.0, normalization_rule_name="identity",
    remove_extra_whitespaces=False, max_sentence_length=1000000, hard_vocab_limit=False, minloglevel=2,
)
seconds = time.perf_counter() - begin
lines = open(sys.argv[1] + ".model.vocab", encoding="utf-8").read().split("\\n")[3:]
print(json.dumps([seconds, [[p, float(s)] for p, s in (line.rsplit("\\t", 1) for line in lines if line)]]))
"""


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench unigram", description=__doc__)
    parser.add_argument("--peer", required=True, help="a Python that has the package sentencepiece")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one small text, one round, nothing kept")
    given = parser.parse_args(words)
    load, rows = machine.load(), []
    for name, lines in texts(given.quick):
        print(name, file=sys.stderr)
        rows.append({"text": name, **compared(lines, given.peer, 1 if given.quick else given.rounds)})
    version = _output([given.peer, "-c", "import sentencepiece; print(sentencepiece.__version__)"]).strip()
    result = {**machine.stamp(), "load_before": load, "sentencepiece": version, "rows": rows}
    print(table(result))
    if not given.quick:
        RESULT.parent.mkdir(exist_ok=True)
        keep(result, RESULT, PAGE, "unigram", table(result))
    return 0


def texts(quick: bool = False) -> Iterator[tuple[str, list[str]]]:
    """The names and lines of the texts that are here."""
    code = [
        line
        for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py"))
        if "site-packages" not in path.parts
        for line in path.read_text(encoding="utf-8", errors="ignore").splitlines()
    ]
    if quick:
        yield "Python code, 2,000 lines", code[:2000]
        return
    for name, corpus, files in (
        ("WikiText-2, validation and test", "wikitext-2", ["wiki.valid.raw.gz", "wiki.test.raw.gz"]),
        ("Multi30k in four languages", "multi30k", [f"train.{language}.gz" for language in ("cs", "de", "en", "fr")]),
    ):
        if missing(corpus):
            print(f"left out: {missing(corpus)}", file=sys.stderr)
            continue
        parts = [gzip.decompress((folder(corpus) / file).read_bytes()).decode() for file in files]
        yield name, [line for part in parts for line in part.splitlines()]
    yield "Python's standard library", code


def compared(lines: list[str], peer: str, rounds: int) -> dict[str, Any]:
    """Seconds of both in turns, and how well the pieces fit the lines that were left out."""
    training = [line for number, line in enumerate(lines) if number % HELD_OUT]
    held_out = lines[::HELD_OUT]
    seconds: dict[str, list[float]] = {OURS: [], THEIRS: []}
    row: dict[str, Any] = {"characters": sum(map(len, training)), "seconds": seconds}
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "text"
        file.write_text("\n".join(training) + "\n", encoding="utf-8")
        for _ in range(rounds):
            for name, command in ((OURS, [sys.executable, "-c", _OURS]), (THEIRS, [peer, "-c", _THEIRS])):
                taken, pieces = json.loads(_output([*command, str(file), str(SIZE)]))
                seconds[name].append(round(taken, 2))
                row[name] = fit(pieces, held_out)
    return row


def fit(pieces: list[list[Any]], lines: list[str]) -> dict[str, float]:
    """Tokens of the lines, and nats a character of their most probable segmentations; unknown characters are left out."""
    from tokenizers import models

    from qkv.data.tokenizers.pipelines import count_metaspace_words
    from qkv.data.tokenizers.training.unigram import Unigram

    scores = dict(pieces)
    model = models.Unigram([("<unk>", 0.0), *scores.items()], 0, False)
    tokens = characters = 0
    nats = 0.0
    for word, count in count_metaspace_words(lines, Unigram().pipeline(models.Unigram()), True).items():
        split = [token.value for token in model.tokenize(word) if token.value in scores]
        tokens += count * len(split)
        characters += count * sum(map(len, split))
        nats -= count * sum(scores[piece] for piece in split)
    return {"pieces": len(pieces), "tokens": tokens, "nats": round(nats / max(characters, 1), 4)}


def _output(command: list[str]) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{command[0]} ended with status {done.returncode}")
    return done.stdout


def table(result: dict[str, Any]) -> str:
    """The table in Markdown, with what it was measured on."""
    lines = [
        f"| text | million characters | qkv, s | SentencePiece, s | ratio (goal: ≤ {ASKED}) | tokens "
        "| nats per character |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in result["rows"]:
        ours, theirs = row["seconds"][OURS], row["seconds"][THEIRS]
        ratio = median(a / b for a, b in zip(ours, theirs, strict=True))
        lines.append(
            f"| {row['text']} | {row['characters'] / 1e6:.1f} | {median(ours):.2f} | {median(theirs):.2f} | {ratio:.2f} | "
            f"{row[OURS]['tokens']:,}; {row[THEIRS]['tokens']:,} | {row[OURS]['nats']:.3f}; {row[THEIRS]['nats']:.3f} |"
        )
    where = result["machine"]
    return "\n".join(
        [
            *lines,
            "",
            f"Measured by `python -m bench unigram` on {result['date']}: {where['processor']}, {where['cores']} cores, "
            f"Python {result['versions']['python']}, SentencePiece {result['sentencepiece']} with {where['cores']} threads, "
            f"commit {result['code']['commit']}; medians of {len(result['rows'][0]['seconds'][OURS])} interleaved runs, "
            f"load average {result['load_before']} at the start. The last two columns "
            "give qkv's value, then SentencePiece's.",
        ]
    )
