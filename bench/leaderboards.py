"""`python -m bench leaderboards`: seconds of lm-evaluation-harness's requests by `qkv eval --tasks` and its backend `hf`.

Both have the same weights, a GPT-2 of 6 layers of width 384 with random numbers, in fp32 on the CPU, and take turns. The
requests are those of three kinds of tasks: four choices for each of 50 questions, 20 outputs of 32 tokens, and the
likelihood of 20 texts. The answers of both have to agree. It needs lm_eval and transformers, and keeps nothing.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

import qkv

from . import machine

SIZES = {"d_model": 384, "n_layers": 6, "n_heads": 6, "d_ff": 1536, "max_positions": 512}
QUICK = {"d_model": 32, "n_layers": 2, "n_heads": 2, "d_ff": 64, "max_positions": 512}
WORDS = "the a cat dog river old small of in to and ran saw said she night"
KINDS = {
    "loglikelihood": "four choices for each question",
    "generate_until": "outputs of 32 tokens",
    "loglikelihood_rolling": "likelihoods of texts",
}


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench leaderboards", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--threads", type=int, help="of PyTorch [default: its own number]")
    parser.add_argument("--quick", action="store_true", help="a tiny model and a tenth of the requests")
    given = parser.parse_args(words)
    if given.threads:
        torch.set_num_threads(given.threads)
    before, rows = machine.load(), []
    with tempfile.TemporaryDirectory(prefix="qkv-leaderboards-") as folder:
        ours, theirs = backends(Path(folder), given.batch_size, given.quick)
        for kind in KINDS:
            seconds: dict[str, list[float]] = {"qkv": [], "hf": []}
            for number in range(given.rounds + 1):
                answers = []
                for name, backend in (("qkv", ours), ("hf", theirs)):
                    asked = requests(10 if given.quick else 1)[kind]  # made anew, as `hf` changes options
                    began = time.perf_counter()
                    answers.append(getattr(backend, kind)(asked, disable_tqdm=True))
                    if number:  # the first round warms up
                        seconds[name].append(time.perf_counter() - began)
                agree(kind, *answers)
            rows.append((KINDS[kind], len(asked), *(median(each) for each in seconds.values())))
    print(table(rows))
    print(f"{machine.stamp()}, load {before} before, batches of {given.batch_size}, {torch.get_num_threads()} threads")
    return 0


def backends(folder: Path, batch_size: int, quick: bool) -> tuple[Any, Any]:
    """The harness's model interface over a run, and its `hf` backend with the same weights."""
    from lm_eval.models.huggingface import HFLM
    from tokenizers.processors import TemplateProcessing

    from qkv.lm_eval import HarnessModel

    torch.manual_seed(0)
    tokenizer = qkv.load("small-english", "cpu").words
    template = TemplateProcessing("<s> $A", None, [("<s>", tokenizer.id("<s>"))])  # by which both begin texts
    tokenizer.raw.post_processor = template
    spec = qkv.preset("gpt2", **(QUICK if quick else SIZES), vocab_size=tokenizer.vocab_size)
    run = qkv.Run(qkv.build(spec), tokenizer)
    run.save(folder, to="hub", overwrite=True)
    (folder / "generation_config.json").unlink()  # whose max_new_tokens `hf` would prefer to the tasks'
    theirs = HFLM(pretrained=str(folder), device="cpu", dtype="float32", batch_size=batch_size)
    return HarnessModel(qkv.load(folder, "cpu"), batch_size=batch_size, show_progress=False), theirs


def requests(part: int) -> dict[str, list[Any]]:
    """The requests of each kind of task, of random English words; of a `part` as many."""
    from lm_eval.api.instance import Instance

    draw = random.Random(0)

    def text(least: int, most: int) -> str:
        return " ".join(draw.choices(WORDS.split(), k=draw.randint(least, most)))

    pairs = [(question, f" {text(1, 8)}") for question in (text(40, 160) for _ in range(50 // part)) for _ in range(4)]
    until = {"until": ["\n\n"], "max_gen_toks": 32, "do_sample": False}
    arguments: dict[str, list[Any]] = {
        "loglikelihood": pairs,
        "generate_until": [(text(20, 80), dict(until)) for _ in range(20 // part)],
        "loglikelihood_rolling": [(text(80, 400),) for _ in range(20 // part)],
    }
    return {kind: [Instance(kind, {}, each, i) for i, each in enumerate(given)] for kind, given in arguments.items()}


def agree(kind: str, ours: list[Any], theirs: list[Any]) -> None:
    """Raise AssertionError if the backends differ."""
    if kind == "generate_until":
        assert ours == theirs, "outputs differ"
        return
    first: Callable[[Any], float] = lambda one: one[0] if isinstance(one, tuple) else one  # noqa: E731
    for mine, other in zip(map(first, ours), map(first, theirs), strict=True):
        assert abs(mine - other) <= 1e-4 * max(1.0, abs(other)), (kind, mine, other)


def table(rows: list[tuple[str, int, float, float]]) -> str:
    lines = ["| requests | number | qkv, s | `hf`, s | times as fast |", "|---|---|---|---|---|"]
    return "\n".join(
        [*lines, *(f"| {what} | {n} | {ours:.2f} | {hf:.2f} | {hf / ours:.2f} |" for what, n, ours, hf in rows)]
    )
