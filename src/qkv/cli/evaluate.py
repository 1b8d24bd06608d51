"""`qkv eval`: evaluate a trained run on a split of its data or on other files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from .options import Device, Json
from .say import echo


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPLIT | KEY=VALUE",
            help="A split (`train`, `validation`, `test`), or settings of the data, such as "
            "`--data test_path=my.tsv`; repeatable. [default: test]",
        ),
    ] = None,
    num_beams: Annotated[
        int | None, typer.Option(metavar="N", help="Beam search with N beams. [default: the run's]")
    ] = None,
    max_examples: Annotated[
        str | None,
        typer.Option(metavar="N|all", help="Evaluate the first N examples, or all. [default: the recipe's]"),
    ] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Evaluate a run on its test split, on another split, or on other files.

    The metrics of language models and translators are perplexity, bits per byte, exact match, BLEU and chrF (by sacreBLEU,
    with their signatures). Runs trained on a task have the metrics of that task.
    """
    from ..experiments.evaluate import evaluate_run
    from ..inference.run import load
    from .results import show_evaluation

    loaded = load(run, device=device)
    splits = [item for item in data or () if "=" not in item]
    if len(splits) > 1:
        raise ValueError(f"--data takes one split, not {' and '.join(splits)}; evaluate them one by one")
    result = evaluate_run(
        loaded,
        split=splits[0] if splits else "test",
        data=[item for item in data or () if "=" in item],
        num_beams=num_beams,
        max_examples=None if max_examples is None else _number(max_examples),
    )
    if json:
        echo(result.to_json())
        return
    show_evaluation(result)
    if result.limited:
        echo("To evaluate on all examples: --max-examples all")


def _number(text: str) -> int | Literal["all"]:
    if text == "all":
        return "all"
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"--max-examples is `all` or a number of at least 1, not {text!r}")
    return int(text)
