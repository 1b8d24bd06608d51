"""`python -m bench speculation RUN --texts FILE [--draft RUN2]`: how much faster a run generates with speculative decoding.

Outputs are generated greedily, one text at a time, plainly and with each kind of speculation in turn. The texts are lines of
the file at equal distances. The table is in docs/performance.md, with the commands that train the runs which it is of.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from qkv.data.files.compressed import open_bytes
from qkv.generation import Acceptance
from qkv.runs.inference.run import Run, load

from . import machine
from .page_tables import keep

RESULT = Path(__file__).resolve().parent / "results" / "speculation" / "speed.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
ASKED = 1.5  # times as fast
PLAIN = "none"
Options = dict[str, Any]


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench speculation", description=__doc__)
    parser.add_argument("run", help="the directory of a run that generates text")
    parser.add_argument(
        "--texts", type=Path, required=True, metavar="FILE", help="one text a line; it may be compressed"
    )
    parser.add_argument("--draft", metavar="RUN2", help="a smaller run with the same tokenizer")
    parser.add_argument("--count", type=int, default=20, help="of texts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="nothing kept")
    given = parser.parse_args(words)
    torch.set_num_threads(given.threads)
    run, draft = (None if each is None else load(each, "cpu") for each in (given.run, given.draft))
    assert run is not None
    result = {
        **machine.stamp(),
        "load_before": machine.load(),
        "threads": given.threads,
        "texts": f"{given.count} lines of {given.texts.name}",
        "parameters": {name: each.model.spec.n_parameters for name, each in (("model", run), ("draft", draft)) if each},
        **measured(run, spread(given.texts, given.count), kinds(run, draft), given.rounds),
    }
    print(table(result))
    if not given.quick:
        RESULT.parent.mkdir(exist_ok=True)
        keep(result, RESULT, PAGE, "speculation", table(result))
    return 0


def spread(path: Path, count: int) -> list[str]:
    """Lines of a file at equal distances."""
    lines = bytes(open_bytes(path)).decode("utf-8").splitlines()
    return [lines[i * len(lines) // count] for i in range(count)]


def kinds(run: Run, draft: Run | None) -> dict[str, Options]:
    """What is compared, by its name in the table."""
    decoder = getattr(run.model.spec, "decoder", None)
    layers = 0 if decoder is None else decoder.n_layers
    exits = sorted(at for at in {max(1, layers // 3), layers - 1} if 0 < at < layers)
    named: dict[str, Options] = {PLAIN: {}, "`lookup`": {"speculate": "lookup"}}
    for n in (3, 5):
        key = {"kind": "early-exit", "num_speculative_tokens": n}
        named |= {f"`early-exit:{at}`, {n} tokens": {"speculate": {**key, "layers": at}} for at in exits}
        if draft is not None:
            speculate = {"kind": "draft", "num_speculative_tokens": n}
            named[f"`draft`, {n} tokens"] = {"speculate": speculate, "draft": draft}
    return named


def measured(run: Run, texts: Sequence[str], named: Mapping[str, Options], rounds: int) -> dict[str, Any]:
    """The seconds of every kind in each round, and what was accepted."""
    rows: dict[str, dict[str, Any]] = {name: {"seconds": []} for name in named}
    wanted: list[str] = []
    for number in range(1 + rounds):
        for name, options in named.items():
            begin = time.perf_counter()
            outputs = [_output(run, text, options) for text in (texts if number else texts[:2])]
            seconds = time.perf_counter() - begin
            if not number:  # the first turn warms up
                continue
            words = [output.text for output in outputs]
            wanted = wanted or words
            counts = sum((output.acceptance or Acceptance() for output in outputs), Acceptance())
            rows[name]["seconds"].append(round(seconds, 3))
            rows[name] |= {
                "tokens": sum(len(output.tokens) for output in outputs),
                "accepted": counts.accepted,
                "proposed": counts.proposed,
                "passes": counts.passes,
                "same": sum(map(str.__eq__, words, wanted)),
            }
    return {"rows": [{"what": name, **row} for name, row in rows.items()], "count": len(texts), "rounds": rounds}


def _output(run: Run, text: str, options: Options) -> Any:
    greedy: Options = {"num_beams": 1, "num_samples": 1, "do_sample": False}
    settings = run.settings(**greedy, **{name: value for name, value in options.items() if name != "draft"})
    (samples,) = run.outputs([text], settings, draft=options.get("draft"))
    return samples[0]


def table(result: dict[str, Any]) -> str:
    """The table in Markdown, with what it was measured on."""
    rows, where = result["rows"], result["machine"]
    plain = rows[0]["seconds"]
    lines = [
        "| speculation | tokens/s | times as fast | accepted of proposed tokens | tokens in a pass | same outputs |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    best = 0.0
    for row in rows:
        rate = row["tokens"] / median(row["seconds"])
        if row["what"] == PLAIN:
            lines.append(f"| {PLAIN} | {rate:,.0f} | 1 | | 1 | |")
            continue
        faster = median(a / b for a, b in zip(plain, row["seconds"], strict=True))
        best = max(best, faster)
        share = f"{row['accepted']:,} of {row['proposed']:,} ({row['accepted'] / max(row['proposed'], 1):.0%})"
        lines.append(
            f"| {row['what']} | {rate:,.0f} | {faster:.2f} | {share} | {row['tokens'] / row['passes']:.2f} | "
            f"{row['same']} of {result['count']} |"
        )
    sizes = " and ".join(f"a {name} of {count:,} parameters" for name, count in result["parameters"].items())
    reached = "reached" if best >= ASKED else "**not reached**"
    return "\n".join(
        [
            *lines,
            "",
            f"Goal: ≥ {ASKED} times as fast: {reached} (at most {best:.2f}). Measured by `python -m bench speculation` on "
            f"{result['date']}, commit {result['code']['commit']}: {sizes}, {result['texts']}, greedy, one text at a time; "
            f"{where['processor']} ({', '.join(where['instructions'])}), {result['threads']} thread, Python "
            f"{result['versions']['python']}, PyTorch {result['versions']['torch']}; medians of {result['rounds']} rounds.",
        ]
    )
