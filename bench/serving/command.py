"""`python -m bench serving`: GPT-2 124 M, or a Llama of 1.1 B, decodes 128 tokens after 128, beside other libraries.

Each library runs in its own interpreter.

    python -m bench serving --peer "CTranslate2=envs/ct/bin/python" --peer "llama.cpp=envs/llama/bin/python" …

All libraries get the same random weights (a directory of the Hub, made on first use): CTranslate2's own converter,
`qkv convert --to onnx` for ONNX Runtime and OpenVINO, `qkv convert --to gguf` for llama.cpp. They are loaded before the
readings and take turns; the bandwidth of memory is probed after each turn. Prompts count into the time. A library for which
no interpreter is given stands in the table as not measured.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from .. import machine
from ..contenders import loading
from ..contenders.loading import FOLDER
from ..contenders.process import Contender
from ..page_tables import keep
from ..start import directory
from .peer import LIBRARIES

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results" / "serving"
PAGE = HERE.parents[1] / "docs" / "performance.md"
OURS = "qkv"
PROMPT = NEW = 128
MATRICES = {  # numbers that a token reads, those of the head among them
    "gpt2": 12 * 12 * 768**2 + 50257 * 768,
    "llama": 22 * (2048 * (2048 + 2 * 256 + 2048) + 3 * 2048 * 5632) + 32000 * 2048,
}
COMMANDS = {"gpt2": "serving", "llama": "serving --model llama"}
BYTES = {
    "fp32": 4.0,
    "bf16": 2.0,
    "int8": 1.0,
    "int4": 0.5 + 4 / 32,
}  # codes, and of 4 bits a scale in fp32 for every 32
ASKED_SHARE = {"fp32": 0.85, "bf16": 0.85, "int8": 0.8, "int4": 0.8}
LLAMA_CPP = {"fp32": "f32", "bf16": "bf16", "int8": "q8_0", "int4": "q4_0"}
OFFERED = {  # the precisions in which each library decodes here, one row at a time and several
    OURS: ("fp32", "bf16", "int8", "int4"),
    "Hugging Face": ("fp32", "bf16"),
    "CTranslate2": ("fp32", "int8"),
    "ONNX Runtime": ("fp32", "int8"),
    "OpenVINO": ("fp32", "int8"),
    "llama.cpp": ("fp32", "bf16", "int8", "int4"),
}
ASKED = {name: 1.0 if name == "Hugging Face" else 1.1 for name in OFFERED}


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench serving", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=list(MATRICES), default="gpt2")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON", help="a library's interpreter")
    parser.add_argument("--precision", action="append", choices=list(BYTES), help="default: all")
    parser.add_argument("--batch", action="append", type=int, help="default: 1 and 16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only-prepare", action="store_true", help="convert the weights for each library, and end")
    given = parser.parse_args(words)
    pythons = {OURS: sys.executable, **dict(peer.split("=", 1) for peer in given.peer)}
    unknown = sorted(pythons.keys() - LIBRARIES.keys())
    if unknown:
        parser.error(f"there is no library {unknown[0]!r} here; there is: {', '.join(LIBRARIES)}")
    cases = [(batch, precision) for batch in given.batch or (1, 16) for precision in given.precision or BYTES]
    if given.only_prepare:
        for _, precision in cases:
            for name, python in pythons.items():
                if precision in OFFERED[name]:
                    print(prepared(name, python, precision, given.model))
        return 0
    path = RESULTS / f"{given.model}.json"
    kept = json.loads(path.read_text())["cases"] if path.exists() else []
    measured = [measure(*case, pythons, given.rounds, given.threads, given.model) for case in cases]
    there = {(case["batch"], case["precision"]) for case in measured}
    kept = [case for case in kept if (case["batch"], case["precision"]) not in there]
    order = list(BYTES)
    result = {"cases": sorted(kept + measured, key=lambda case: (case["batch"], order.index(case["precision"])))}
    print(table({"cases": measured}, given.model))
    keep(result, path, PAGE, COMMANDS[given.model], table(result, given.model))
    return 0


def prepared(library: str, python: str, precision: str, model: str) -> Path:
    """The model as a library reads it; it is converted if it isn't there yet."""
    source = directory() if model == "gpt2" else loading.directory("llama, 1.1 B")
    folder = FOLDER / "serving"
    own = "" if model == "gpt2" else f"{model}-"
    folder.mkdir(exist_ok=True)
    convert = [sys.executable, "-m", "qkv", "convert", str(source)]
    if library == "CTranslate2":
        made = folder / f"{own}ctranslate2-{precision}"
        kind = "float32" if precision == "fp32" else precision
        converter = str(Path(python).parent / "ct2-transformers-converter")
        command = [converter, "--model", str(source), "--output_dir", str(made), "--quantization", kind]
    elif library == "llama.cpp":
        made = folder / f"{model}-{LLAMA_CPP[precision]}.gguf"
        command = [*convert, str(made), "--to", "gguf", "--type", LLAMA_CPP[precision]]
    elif library in ("ONNX Runtime", "OpenVINO"):
        made = folder / f"{own}onnx-{precision}"
        command = [*convert, str(made), "--to", "onnx", *(["--int8"] if precision == "int8" else [])]
    else:
        return source
    if not made.exists():
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return made


def measure(
    batch: int, precision: str, pythons: dict[str, str], rounds: int, threads: int, model: str
) -> dict[str, Any]:
    """Tokens per second of every library that offers a precision, in turns, and the bandwidth beside them."""
    load, found, failed = machine.load(), dict[str, Contender](), dict[str, str]()
    for name, offered in OFFERED.items():
        if precision not in offered:
            continue
        if name not in pythons:
            failed[name] = "no interpreter given"
            continue
        try:
            where = prepared(name, pythons[name], precision, model)
            words = (name, where, precision, batch, PROMPT, NEW, threads)
            found[name] = Contender(pythons[name], HERE / "peer.py", words, threads)
        except (ValueError, OSError, subprocess.CalledProcessError) as error:
            failed[name] = str(error)[:200]
    rates: dict[str, list[float]] = {name: [] for name in found}
    first: dict[str, list[int]] = {}
    bandwidth: list[float] = []
    for number in range(rounds):
        for name in list(found) if number % 2 == 0 else reversed(found):
            answer = found[name].ask("go")
            rates[name].append(round(batch * NEW / answer["seconds"], 2))
            first[name] = answer["first"]
            bandwidth.append(found[OURS].ask("probe")["gb_per_s"])
    case = {
        "batch": batch,
        "precision": precision,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine.describe(),
        "code": machine.code(),
        "torch": version("torch"),
        "python": platform.python_version(),
        "load_before": load,
        "threads": threads,
        "rounds": rounds,
        "tokens_per_s": rates,
        "first": first,
        "gb_per_s": round(median(bandwidth), 2),
        "versions": {name: contender.version for name, contender in found.items()},
        "failed": failed,
    }
    for contender in found.values():
        contender.close()
    return case


def _why(failure: str) -> str:
    """Why a library has no number, for readers of the table."""
    reason = "" if failure == "no interpreter given" else f", {failure.removeprefix('ValueError: ')}"
    return f"not measured{reason}"


def table(result: dict[str, Any], model: str = "gpt2") -> str:
    """The table in Markdown, with what it was measured on."""
    lines = ["| batch | precision | library | tokens/s | qkv ÷ it | goal |", "|---:|---|---|---:|---:|---|"]
    for case in result["cases"]:
        batch, precision = case["batch"], case["precision"]
        rates = {name: median(each) for name, each in case["tokens_per_s"].items()}
        share = rates[OURS] / batch * MATRICES[model] * BYTES[precision] / (case["gb_per_s"] * 1e9)
        of = f", {share:.0%} of {case['gb_per_s']:.0f} GB/s" if batch == 1 else ""
        asked = f"≥ {ASKED_SHARE[precision]:.0%}: {_met(share >= ASKED_SHARE[precision])}" if batch == 1 else ""
        lines.append(f"| {batch} | {precision} | qkv{of} | {rates[OURS]:.1f} | | {asked} |")
        for name, rate in rates.items():
            if name == OURS:
                continue
            least = 1.0 if name == "llama.cpp" and precision == "int4" else ASKED[name]
            ratio = rates[OURS] / rate
            same = "" if case["first"][name] == case["first"][OURS] else ", other tokens"
            kind = f"{name} {LLAMA_CPP[precision].upper()}" if name == "llama.cpp" else name
            lines.append(
                f"| {batch} | {precision} | {kind}{same} | {rate:.1f} | {ratio:.2f} | ≥ {least}: {_met(ratio >= least)} |"
            )
        lines += [f"| {batch} | {precision} | {name}: {_why(why)} | | | |" for name, why in case["failed"].items()]
    where = result["cases"][-1]["machine"]
    versions: dict[str, str] = {}
    for case in result["cases"]:
        versions |= case["versions"]
    sets = "; ".join(
        f"batch {case['batch']} {case['precision']}: {case['date']}, commit {case['code']['commit']}, "
        f"{case['rounds']} rounds, load {case['load_before']} before"
        for case in result["cases"]
    )
    lines += [
        "",
        f"Measured by `python -m bench {COMMANDS[model]} --peer NAME=PYTHON …`: {where['processor']} "
        f"({', '.join(where['instructions'])}), {where['cores']} cores, {result['cases'][-1]['threads']} threads; "
        f"{', '.join(versions.values())}; {PROMPT} tokens in and {NEW} out, medians of turns. {sets}. With weights of "
        "8 and 4 bits all libraries round activations to 8 bits; greedy tokens of random weights then part soon.",
    ]
    return "\n".join(lines)


def _met(reached: bool) -> str:
    return "reached" if reached else "**not reached**"
