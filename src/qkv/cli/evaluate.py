"""`qkv eval`: how well a trained model does on a split of its data, or on other files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

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
    num_beams: Annotated[int | None, typer.Option(metavar="N", help="Beams. [default: the run's]")] = None,
    max_examples: Annotated[
        str | None,
        typer.Option(
            metavar="N|all", help="Evaluate on the first N examples, or on all. [default: as the recipe says]"
        ),
    ] = None,
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda|mps", help="Where to compute.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure how well a run does on its test split, on another split, or on other files.

    Language models and translators get perplexity, bits per byte, exact match, BLEU and chrF (sacreBLEU's, with their
    signatures); a run that was trained on a task gets the metrics of that task.
    """
    from ..experiments.evaluate import evaluate_run
    from ..inference.run import load
    from .results import show_evaluation

    loaded = load(run, device=device)
    splits = [item for item in data or () if "=" not in item]
    if len(splits) > 1:
        raise ValueError(f"one split at a time, not {' and '.join(splits)}")
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


def _number(given: str) -> int | Literal["all"]:
    if given == "all":
        return "all"
    if not given.isdecimal() or int(given) < 1:
        raise ValueError(f"--max-examples is a number from 1 on, or `all`, not {given!r}")
    return int(given)
