"""`qkv eval`: evaluate a trained run on a split of its data or on other files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .options import Device, EnsembleMode, EnsembleWeights, Json, Overwrite
from .say import echo

if TYPE_CHECKING:
    from ..runs.inference.run import Run


def evaluate(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="A run directory; or several, which predict together by the mean of their probabilities, on the data of "
            "the first.",
        ),
    ],
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
        typer.Option(
            "--max-examples",
            "--limit",
            metavar="N|all",
            help="Take the first N examples, or all. [default: the recipe's]",
        ),
    ] = None,
    evaluation: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="A setting of the evaluation, such as `--evaluation metrics=[bleu,chrf++,ter]`; repeatable.",
        ),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="A setting of how the task finds its outputs, such as `--task lm=words.arpa` of speech; repeatable.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a JSONL or JSON file with every output: `source`, `hypothesis`, `references` and its `scores`.",
        ),
    ] = None,
    overwrite: Overwrite = False,
    tasks: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME",
            help="Evaluate on tasks of lm-evaluation-harness, such as hellaswag,arc_easy, or of mteb for embedders.",
        ),
    ] = None,
    num_fewshot: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Solved examples before each question of a task. [default: the task's]"),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Outputs of a task that are generated together. [default: 32]"),
    ] = None,
    apply_chat_template: Annotated[
        bool, typer.Option("--apply-chat-template", help="Ask the questions of tasks with the chat template.")
    ] = False,
    include_path: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder with your own tasks, in the harness's YAML format.")
    ] = None,
    gen_kwargs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE,…",
            help="Generation options that override a task's, such as max_gen_toks=64,do_sample=true,temperature=0.7; "
            "repeatable.",
        ),
    ] = None,
    ensemble_weights: EnsembleWeights = None,
    ensemble_mode: EnsembleMode = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Evaluate a run on its test split, on another split, or on other files.

    The metrics of language models and translators are perplexity, bits per byte, exact match, BLEU and chrF (by sacreBLEU,
    with their signatures), or those named by `--evaluation metrics=[…]`. Runs trained on a task have the metrics
    of that task.
    """
    from ..core import json_files
    from ..core.atomic import make_folder, write_file
    from ..io.directories.layout import claim_output
    from ..runs.evaluate.evaluate import evaluate_run
    from .results import show_evaluation

    if out is not None:
        claim_output(out, overwrite)
    of_tasks: dict[str, Any] = {"num_fewshot": num_fewshot, "batch_size": batch_size, "include_path": include_path}
    of_tasks |= {"apply_chat_template": apply_chat_template or None, "gen_kwargs": _gen_kwargs(gen_kwargs or ())}
    if tasks is not None:
        others = {"--data": data, "--num-beams": num_beams, "--evaluation": evaluation, "--task": task}
        _evaluate_tasks(runs, tasks, others, max_examples, out, device, json, of_tasks)
        return
    for name, value in of_tasks.items():
        if value is not None:
            raise ValueError(f"--{name.replace('_', '-')} belongs to --tasks; leave it out, or name tasks")
    loaded = _loaded(runs, device, ensemble_weights, ensemble_mode)
    if out is not None:
        claim_output(out, overwrite, _inputs(loaded, data or ()))
    splits = [item for item in data or () if "=" not in item]
    if len(splits) > 1:
        raise ValueError(f"--data takes one split, not {' and '.join(splits)}; evaluate them one by one")
    result = evaluate_run(
        loaded,
        split=splits[0] if splits else "test",
        data=[item for item in data or () if "=" in item],
        num_beams=num_beams,
        max_examples=None if max_examples is None else _number(max_examples),
        score_each=out is not None,
        evaluation=evaluation or (),
        task=task or (),
        baselines=True,
    )
    if out is not None:
        make_folder(out.parent)
        write_file(out, json_files.rows_in(out, result.outputs).encode())
    if json:
        echo(result.to_json())
        return
    show_evaluation(result)
    if out is not None:
        echo(f"Wrote {len(result.outputs):,} outputs to {out}")
    if result.limited:
        echo("To evaluate on all examples: --max-examples all")


def _evaluate_tasks(
    runs: Sequence[Path],
    tasks: str,
    others: Mapping[str, object],
    max_examples: str | None,
    out: Path | None,
    device: str,
    json: bool,
    options: Mapping[str, Any],
) -> None:
    """Evaluate a run on tasks of another library, and show its scores."""
    from ..core import json_files
    from ..core.atomic import make_folder, write_file
    from ..runs.inference.run import load
    from ..runs.leaderboards.tasks import evaluate_tasks
    from .results import show_tasks

    wrong = next((name for name, value in others.items() if value), None)
    if wrong is not None:
        raise ValueError(f"{wrong} applies to the run's own data, but --tasks bring their own; remove one of them")
    if len(runs) > 1:
        raise ValueError(f"--tasks takes one run, not {len(runs)}; evaluate one run at a time")
    limit = None if max_examples is None else _number(max_examples)
    given = {name: value for name, value in options.items() if value is not None}
    names = [name.strip() for name in tasks.split(",") if name.strip()]
    loaded = load(runs[0], device=device)
    result = evaluate_tasks(loaded, names, limit=None if limit == "all" else limit, **given)
    if out is not None:
        make_folder(out.parent)
        write_file(out, json_files.dumps(result.plain_report(), indent=2).encode())
    if json:
        echo(result.to_json())
        return
    show_tasks(result)
    if out is not None:
        echo(f"Wrote the report to {out}")


def _loaded(runs: Sequence[Path], device: str, weights: str | None, mode: str | None) -> Run:
    """The run to evaluate, or the ensemble of several."""
    from ..runs.inference.run import load
    from .texts import check_several, ensemble_of

    check_several(len(runs), weights, mode)
    loaded = [load(run, device=device) for run in runs]
    return loaded[0] if len(loaded) == 1 else ensemble_of(loaded, weights, mode)


def _inputs(run: Run, data: Sequence[str]) -> list[Path]:
    """The files that the settings of a run's data and `--data` name."""
    from .texts import existing_path

    if run.recipe is None:
        return []
    source = run.recipe.change([f"data.{item.removeprefix('data.')}" for item in data if "=" in item]).data
    values = [value for _, spec in source.walk() for value in vars(spec).values()]
    texts = [text for value in values for text in (value if isinstance(value, (list, tuple)) else [value])]
    return [path for text in texts if isinstance(text, str) and (path := existing_path(text)) is not None]


def _gen_kwargs(given: Sequence[str]) -> dict[str, Any] | None:
    """Parse options such as `temperature=0.7,top_k=20`. A comma separates two options only if a name and `=` follow it."""
    from ..runs.recipes.overrides import parse

    parts = [part.strip() for text in given for part in re.split(r",(?=\s*\w+=)", text)]
    wrong = next((part for part in parts if not re.match(r"\w+=.", part)), None)
    if wrong is not None:
        raise ValueError(f"--gen-kwargs takes options such as temperature=0.7,top_k=20, not {wrong!r}")
    options = [parse(part) for part in parts]
    twice = next((name for name, count in Counter(name for name, _ in options).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"--gen-kwargs gives {twice} more than once; give it once")
    return dict(options) or None


def _number(text: str) -> int | Literal["all"]:
    if text == "all":
        return "all"
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"--max-examples is `all` or a number of at least 1, not {text!r}")
    return int(text)
