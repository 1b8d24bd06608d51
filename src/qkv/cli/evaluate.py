"""`qkv eval`: how well a trained model does on a split of its data, or on other files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


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
    max_examples: Annotated[int | None, typer.Option(metavar="N", help="Evaluate on the first N examples.")] = None,
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda|mps", help="Where to compute.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Evaluate a run: exact match, BLEU and chrF (sacreBLEU, with signatures), perplexity, bits per byte."""
    from ..run.evaluate import evaluate_run
    from ..run.load import load
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
        max_examples=max_examples,
    )
    if json:
        typer.echo(result.to_json())
    else:
        show_evaluation(result)
