"""`python -m bench encoding`: BERT-base classifies texts of real lengths, and ViT-B/16 images, beside other libraries.

    python -m bench encoding --peer "ONNX Runtime=envs/ort/bin/python" --peer "OpenVINO=envs/ov/bin/python" …

All libraries get the same random weights: a directory of the Hub, made on first use, and `qkv convert --to onnx` of it.
Texts have the lengths of AG News's, counted as four thirds of their words and marks, and two; `QKV_BENCH_DATA` names the
folder that holds it. They are sorted by length, in batches of 8 that are padded to their longest text, the same for every
library. Libraries load their models before the readings and take turns. A library for which no interpreter is given stands
in the table as not measured.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import platform
import random
import re
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from .. import machine
from ..contenders.loading import FOLDER
from ..contenders.process import Contender
from ..corpora import folder, missing
from ..page_tables import keep
from .peer import LIBRARIES

HERE = Path(__file__).resolve().parent
RESULT = HERE.parent / "results" / "encoding" / "base.json"
PAGE = HERE.parents[1] / "docs" / "performance.md"
OURS, TEXTS, ROWS, IMAGES = "qkv", 64, 8, 16
NEWS = "ag-news-test"
BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
MODELS: dict[str, dict[str, Any]] = {
    "BERT-base": {
        "model_type": "bert",
        "architectures": ["BertForSequenceClassification"],
        "vocab_size": 30522,
        "max_position_embeddings": 512,
        "num_labels": 4,
    },
    "ViT-B/16": {
        "model_type": "vit",
        "architectures": ["ViTForImageClassification"],
        "image_size": 224,
        "patch_size": 16,
        "num_labels": 1000,
    },
}
PRECISIONS = ("fp32", "bf16", "int8")
OFFERED = {
    OURS: PRECISIONS,
    "Hugging Face": ("fp32", "bf16"),
    "ONNX Runtime": ("fp32", "int8"),
    "OpenVINO": PRECISIONS,
}


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench encoding", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON", help="a library's interpreter")
    parser.add_argument("--precision", action="append", choices=PRECISIONS, help="default: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="tiny models, one round, nothing kept")
    given = parser.parse_args(words)
    if lacks := missing(NEWS):
        parser.error(lacks)
    pythons = {OURS: sys.executable, **dict(peer.split("=", 1) for peer in given.peer)}
    unknown = sorted(pythons.keys() - LIBRARIES.keys())
    if unknown:
        parser.error(f"there is no library {unknown[0]!r} here; there is: {', '.join(LIBRARIES)}")
    measured, exact = [], dict[str, Any]()
    for name in MODELS:
        for precision in given.precision or PRECISIONS:
            case = measure(name, precision, pythons, 1 if given.quick else given.rounds, given.threads, given.quick)
            exact.setdefault(name, case["outputs"][OURS])
            errors = {library: error(own, exact[name]) for library, own in case.pop("outputs").items()}
            measured.append({**case, "errors": errors})
    print(table({"cases": measured}))
    if not given.quick:
        RESULT.parent.mkdir(parents=True, exist_ok=True)
        keep({"cases": measured}, RESULT, PAGE, "encoding", table({"cases": measured}))
    return 0


def directory(name: str, tiny: bool) -> Path:
    """The directory of the Hub of a model with random weights; it is made if it isn't there yet."""
    place = FOLDER / "encoding" / (name.lower().replace("/", "-") + ("-tiny" if tiny else ""))
    if not (place / "config.json").exists():
        from qkv.io.directories.build import build
        from qkv.io.families import FAMILIES

        config = MODELS[name] | (TINY if tiny else BASE)
        build(FAMILIES[config["model_type"]].spec(config), seed=0).save(place, to="hub")
    return place


def prepared(library: str, source: Path, precision: str) -> Path:
    """The model as a library reads it; it is converted if it isn't there yet."""
    if library in (OURS, "Hugging Face"):
        return source
    kind = "int8" if precision == "int8" else "fp32"
    made = source.with_name(f"{source.name}-onnx-{kind}")
    if not made.exists():
        command = [sys.executable, "-m", "qkv", "convert", str(source), str(made), "--to", "onnx"]
        subprocess.run([*command, *(["--int8"] if kind == "int8" else [])], check=True, stdout=subprocess.DEVNULL)
    return made


def work_of(name: str, tiny: bool) -> list[Any]:
    """Batches of ids with real lengths, or numbers of images."""
    if MODELS[name]["model_type"] == "vit":
        return [2] if tiny else [ROWS] * (IMAGES // ROWS)
    text = gzip.decompress((folder(NEWS) / "test.csv.gz").read_bytes()).decode()
    rows = list(csv.reader(io.StringIO(text)))[: 2 * ROWS if tiny else TEXTS]
    lengths = sorted(min(512, 2 + len(re.findall(r"\w+|[^\w\s]", " ".join(row[1:]))) * 4 // 3) for row in rows)
    draw = random.Random(0)
    ids = [[draw.randrange(1000, 30000) for _ in range(length)] for length in lengths]
    return [ids[start : start + ROWS] for start in range(0, len(ids), ROWS)]


def measure(
    name: str, precision: str, pythons: dict[str, str], rounds: int, threads: int, tiny: bool
) -> dict[str, Any]:
    """Rows per second of every library that offers a precision, in turns, and its outputs."""
    load, source, work = machine.load(), directory(name, tiny), work_of(name, tiny)
    file = source.with_name(f"{source.name}-work.json")
    file.write_text(json.dumps(work))
    count = sum(batch if isinstance(batch, int) else len(batch) for batch in work)
    found, failed = dict[str, Contender](), dict[str, str]()
    for library, offered in OFFERED.items():
        if precision not in offered:
            continue
        if library not in pythons:
            failed[library] = "no interpreter given"
            continue
        try:
            words = (library, prepared(library, source, precision), precision, file, threads)
            found[library] = Contender(pythons[library], HERE / "peer.py", words, threads)
        except (ValueError, OSError, subprocess.CalledProcessError) as error:
            failed[library] = str(error)[:200]
    rates: dict[str, list[float]] = {library: [] for library in found}
    outputs: dict[str, list[list[float]]] = {}
    try:
        for number in range(rounds):
            for library in list(found) if number % 2 == 0 else reversed(found):
                answer = found[library].ask("go")
                rates[library].append(round(count / answer["seconds"], 2))
                outputs[library] = answer["outputs"]
    finally:
        for contender in found.values():
            contender.close()
    return {
        "model": name,
        "precision": precision,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine.describe(),
        "code": machine.code(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "load_before": load,
        "threads": threads,
        "rounds": rounds,
        "rows": count,
        "rows_per_s": rates,
        "outputs": outputs,
        "versions": {library: contender.version for library, contender in found.items()},
        "failed": failed,
    }


def error(found: list[list[float]], exact: list[list[float]]) -> float:
    """‖found − exact‖ / ‖exact‖."""
    pairs = [(a, b) for own, other in zip(found, exact, strict=True) for a, b in zip(own, other, strict=True)]
    return float((sum((a - b) ** 2 for a, b in pairs) / sum(b**2 for _, b in pairs)) ** 0.5)


def table(result: dict[str, Any]) -> str:
    """The table in Markdown, with what it was measured on."""
    lines = [
        "| model | precision | library | rows/s | qkv ÷ it | goal | error |",
        "|---|---|---|---:|---:|---|---:|",
    ]
    versions: dict[str, str] = {}
    for case in result["cases"]:
        rates = {library: median(each) for library, each in case["rows_per_s"].items()}
        versions |= case["versions"]
        for library, rate in rates.items():
            ratio = rates[OURS] / rate
            least = 1.0 if library == "Hugging Face" else 1.2
            met = "reached" if ratio >= least else "**not reached**"
            asked = "" if library == OURS else f"{ratio:.2f} | ≥ {least}: {met}"
            lines.append(
                f"| {case['model']} | {case['precision']} | {library} | {rate:.1f} | {asked or '|'} | "
                f"{case['errors'][library]:.1e} |"
            )
        lines += [
            f"| {case['model']} | {case['precision']} | {name}: {why} | | | | |" for name, why in case["failed"].items()
        ]
    last = result["cases"][-1]
    lines += [
        "",
        f"Measured by `python -m bench encoding --peer NAME=PYTHON …` on {last['date']}: {last['machine']['processor']} "
        f"({', '.join(last['machine']['instructions'])}), {last['machine']['cores']} cores, {last['threads']} threads; "
        f"{', '.join(versions.values())}; commit {last['code']['commit']}, load {result['cases'][0]['load_before']} before; "
        f"medians of {last['rounds']} turns. Errors are those of the logits, relative to qkv's in fp32; weights are random.",
    ]
    return "\n".join(lines)
