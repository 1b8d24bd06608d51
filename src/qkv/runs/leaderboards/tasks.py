"""Evaluate a run on tasks of lm-evaluation-harness, or of mteb if it embeds texts."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...core import json_files
from ...core.optional_libraries import need
from ...core.spec import brief, counted
from ..inference.run import Run
from ..inference.uses import commands, kind_of

GENERATES = "generate_until"  # the harness's kind of task that has outputs
MTEB = "mteb:"  # before the name of a task that a language model embeds texts for


@dataclass(frozen=True)
class TaskScore:
    """One metric of a task: its value, and its standard error if there is one. `filter`: how answers are read, if in several
    ways."""

    task: str
    metric: str
    value: float
    stderr: float | None = None
    filter: str = ""
    n_shot: int | None = None
    examples: int | None = None
    version: str = ""


@dataclass(frozen=True)
class TaskScores:
    """The scores of tasks. `library`: the library, with its version, that defines them. `report`: all that it reports, in
    its own shape."""

    library: str
    scores: list[TaskScore]
    notes: list[str]
    seconds: float
    report: dict[str, Any]

    def plain_report(self) -> dict[str, Any]:
        """Return the report with texts in place of what JSON lacks, such as functions of a task."""
        report: dict[str, Any] = json.loads(json.dumps(self.report, default=str))
        return report

    def to_json(self) -> str:
        """Return everything but `report` as JSON."""
        fields = asdict(replace(self, report={}))
        del fields["report"]
        return json_files.dumps(fields, indent=2)


def evaluate_tasks(
    run: Run,
    tasks: Sequence[str],
    *,
    limit: int | None = None,
    num_fewshot: int | None = None,
    batch_size: int = 32,
    apply_chat_template: bool = False,
    include_path: str | Path | None = None,
    gen_kwargs: Mapping[str, object] | None = None,
) -> TaskScores:
    """Evaluate a run that generates texts on tasks of lm-evaluation-harness, and one that embeds texts on tasks of mteb.

    tasks: names, groups and patterns such as `arc_*`; `mteb:NAME` is a task of mteb for a model that does both.
    limit: the most examples of a task. num_fewshot: solved examples before each question; the task's own number by default.
    include_path: a folder of tasks of your own, in the harness's YAML form.
    gen_kwargs: generation options that override the tasks' options, such as `{"max_gen_toks": 64, "temperature": 0.7}`.

    Raises ValueError for unknown tasks, a run that can do neither, options that the library lacks, and data that can't be
    read.
    """
    usable = commands(run)
    names = [name.removeprefix(MTEB) for name in tasks]
    embeds = all(name.startswith(MTEB) for name in tasks) or "score" not in usable
    if not names or (any(name.startswith(MTEB) for name in tasks) and not embeds):
        raise ValueError(
            f"tasks are names of one library, such as hellaswag,arc_easy or mteb:STSBenchmark, not {tasks}"
        )
    if embeds and "embed" not in usable:
        raise ValueError(
            f"{run.name} is {kind_of(run)}; tasks of lm-evaluation-harness need a model that generates texts, and tasks of "
            "mteb one that embeds them"
        )
    began = time.perf_counter()
    if not embeds:
        return _by_harness(
            run, names, began, limit, num_fewshot, batch_size, apply_chat_template, include_path, gen_kwargs
        )
    given = {"a limit": limit, "num_fewshot": num_fewshot, "include_path": include_path, "gen_kwargs": gen_kwargs}
    for option, value in {**given, "apply_chat_template": apply_chat_template or None}.items():
        if value is not None:
            raise ValueError(f"tasks of mteb have no {option.removeprefix('a ')}; leave it out")
    return _by_mteb(run, names, began)


def _by_harness(
    run: Run,
    names: list[str],
    began: float,
    limit: int | None,
    num_fewshot: int | None,
    batch_size: int,
    apply_chat_template: bool,
    include_path: str | Path | None,
    gen_kwargs: Mapping[str, object] | None,
) -> TaskScores:
    from .harness import HarnessModel, check_options

    check_options(gen_kwargs or {}, by_user=True)
    need("evaluation on tasks", "lm_eval")
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    if include_path is not None and not Path(include_path).is_dir():
        raise ValueError(f"include_path is a folder of tasks in YAML, and {brief(str(include_path))} is none")
    logging.getLogger("lm_eval").setLevel(logging.ERROR)  # it comments on defaults of every task
    manager = TaskManager(include_path=None if include_path is None else str(include_path))
    chosen = list(_known(names, manager.match_tasks, manager.all_tasks, "lm-evaluation-harness"))
    if apply_chat_template and "chat" not in commands(run):
        raise ValueError(f"{run.name} has no chat template; leave out --apply-chat-template")
    model = HarnessModel(run, batch_size=batch_size)
    report = _reading(
        chosen,
        lambda: simple_evaluate(
            model=model,
            tasks=chosen,
            num_fewshot=num_fewshot,
            limit=limit,
            apply_chat_template=apply_chat_template,
            fewshot_as_multiturn=apply_chat_template,
            task_manager=manager,
            gen_kwargs=dict(gen_kwargs or {}) or None,
            log_samples=False,
        ),
    )
    notes = []
    scored = [name for name, one in report["configs"].items() if one["output_type"] != GENERATES]
    if gen_kwargs and scored:
        notes.append(f"generation options have no effect on {', '.join(scored)}, which compare likelihoods")
    if model.cut:
        notes.append(
            f"{counted(model.cut, 'context')} lost the beginning to fit into the model's {model.max_length} tokens"
        )
    scores = [score for task in report["results"] for score in _harness_scores(task, report)]
    library = f"lm-evaluation-harness {version('lm_eval')}"
    return TaskScores(library, scores, notes, time.perf_counter() - began, report)


def _harness_scores(task: str, report: Mapping[str, Any]) -> Iterator[TaskScore]:
    values = report["results"][task]
    samples = report.get("n-samples", {}).get(task, {})
    for name, value in values.items():
        metric, _, filtered = name.partition(",")
        if "_stderr" in metric or not isinstance(value, int | float) or not filtered:
            continue
        stderr = values.get(f"{metric}_stderr,{filtered}")
        yield TaskScore(
            task,
            metric,
            float(value),
            float(stderr) if isinstance(stderr, int | float) else None,
            "" if filtered == "none" else filtered,
            report.get("n-shot", {}).get(task),
            samples.get("effective"),
            str(report.get("versions", {}).get(task, "")),
        )


def _by_mteb(run: Run, names: list[str], began: float) -> TaskScores:
    need("evaluation on tasks", "mteb")
    import mteb

    from .embedder import MtebEncoder

    which = f"{run.name} is {kind_of(run)}, for tasks of mteb, which"
    known = sorted(task.metadata.name for task in mteb.get_tasks())
    chosen = list(_known(names, lambda given: [name for name in known if name in given], known, which))
    tasks = mteb.get_tasks(tasks=chosen)
    result = _reading(chosen, lambda: mteb.evaluate(MtebEncoder(run), tasks, cache=None, co2_tracker=False))
    report = {"task_results": [one.to_dict() for one in result.task_results]}
    scores = [
        TaskScore(one["task_name"], entry["hf_subset"], float(entry["main_score"]), version=one["dataset_revision"])
        for one in report["task_results"]
        for entries in one["scores"].values()
        for entry in entries
    ]
    return TaskScores(f"mteb {version('mteb')}", scores, [], time.perf_counter() - began, report)


def _known(names: Iterable[str], match: Any, known: Sequence[str], library: str) -> Iterator[str]:
    """The tasks with these names and patterns. Raises ValueError for one that matches none."""
    for name in names:
        found = match([name])
        if not found:
            close = get_close_matches(name, known, 3, 0.5)
            advice = f"did you mean {' or '.join(close)}?" if close else "`lm-eval ls tasks` lists the names"
            raise ValueError(f"{library} has no task {brief(name)}; {advice}")
        yield from found


def _reading(names: Sequence[str], evaluate: Any) -> Any:
    """What a library reports. Raises ValueError if it can't read the data of its tasks."""
    try:
        return evaluate()
    except (OSError, LookupError, ValueError) as error:
        what = " ".join(str(error).split())[:300]
        if isinstance(error, ValueError) and "Sample larger" not in what:
            raise
        more = (
            "num_fewshot may be more than a task has examples"
            if "Sample larger" in what
            else (
                "tasks load data from the Hub, which needs a connection or a filled cache, or from the files that they name"
            )
        )
        raise ValueError(f"{', '.join(names)} can't be evaluated ({type(error).__name__}: {what}); {more}") from None
