"""`report.html`: what a run did, on one page that needs no network and no script.

The page is a row of sections, each made by a function `(Story) -> Section | None` listed in `SECTIONS`; a run with
other things to show (boxes, spectrograms, forecasts) appends its own function there.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from markupsafe import Markup
from safetensors import SafetensorError, safe_open

from ...cost.machine import cores
from ...directories.layout import (
    EVALUATION,
    METRICS,
    RECIPE,
    REPORT,
    SAMPLES,
    WEIGHTS,
    read_json,
    read_text,
    write_json,
    write_text,
)
from ...look import capture, picture, pictures
from ...look.chart import Series, line_chart
from ...look.history import History
from ...look.html import render
from ...look.svg import join, readable, tag
from ...look.wording import HOW, QUALITY, scaled, shown, taken, titled
from ...look.words import duration, marked
from ...recipes import yamls
from ...training.logging.metrics_file import read_metrics
from . import contextual

if TYPE_CHECKING:
    from ...inference.run import Run
    from ...models.build import AnyModel

ATTENTION = "attention.json"
MACHINE = "machine.json"
_SHOWN = 6  # samples on the page
_PICTURED = 2  # of them with their attention


@dataclass(frozen=True)
class Section:
    """A titled part of the page; `note` is the line under its title."""

    title: str
    body: Markup
    note: str = ""


@dataclass(frozen=True)
class Story:
    """What a run directory tells.

    recipe:     `recipe.yaml` as data.
    history:    the lines of `metrics.jsonl`.
    evaluation: `evaluation.json`: "metrics", "signatures", "split" and "examples" of the weights delivered.
    samples:    `samples.json`: dictionaries with "source", "output", perhaps "target" and "score".
    machine:    where the run was made: "processor", "cores", "gpu", "torch".
    """

    run_dir: Path
    recipe: Mapping[str, Any] = field(default_factory=dict)
    history: History = field(default_factory=History)
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    samples: Sequence[Mapping[str, Any]] = ()
    machine: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, run_dir: Path, samples: Sequence[Mapping[str, Any]] | None = None) -> Story:
        recipe, metrics = run_dir / RECIPE, run_dir / METRICS
        return cls(
            run_dir,
            yamls.load(read_text(recipe), name=str(recipe)) or {} if recipe.exists() else {},
            History.of(read_metrics(metrics)) if metrics.exists() else History(),
            _read_object(run_dir / EVALUATION),
            _read_samples(run_dir / SAMPLES) if samples is None else list(samples),
            _machine(run_dir),
        )

    @property
    def name(self) -> str:
        return str(self.recipe.get("name") or self.run_dir.resolve().name)

    @property
    def task(self) -> str | None:
        """The kind of task that the run was taught; None where it only read texts or pairs."""
        return (self.recipe.get("task") or {}).get("kind")

    @cached_property
    def parameters(self) -> int | None:
        """Numbers in the weights' file, by its header; tensors that parts of the model share stand there once."""
        try:
            with safe_open(self.run_dir / WEIGHTS, framework="numpy") as weights:
                return sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
        except (OSError, SafetensorError):
            return None


def write_report(run_dir: Path | str, samples: Sequence[Mapping[str, Any]] | None = None) -> Path:
    """Write `report.html` into a run directory, the pictured attention beside it, and return the page's path.

    `samples` are dictionaries with "source", "output" and perhaps "target" and "score"; by default those in
    `samples.json`. What a run doesn't have is left out. Raises ValueError when the directory is not there or
    a file in it is malformed.
    """
    run_dir = Path(run_dir)
    if not run_dir.is_dir():
        raise ValueError(f"there is no run directory {run_dir}")
    story = Story.read(run_dir, samples)
    sections = [made for make in SECTIONS if (made := make(story)) is not None]
    page = render("report.html", title=story.name, lead=_lead(story), facts=_facts(story), sections=sections)
    write_text(run_dir / REPORT, page)
    return run_dir / REPORT


def _read_object(path: Path) -> dict[str, Any]:
    found = read_json(path) if path.exists() else {}
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds a {type(found).__name__}, not an object")
    return found


def _read_samples(path: Path) -> list[dict[str, Any]]:
    found = read_json(path) if path.exists() else []
    if not isinstance(found, list) or not all(isinstance(s, dict) and isinstance(s.get("output"), str) for s in found):
        raise ValueError(f'{path} is not a list of samples, objects with "source", "output" and perhaps "target"')
    return found


def _machine(run_dir: Path) -> dict[str, str]:
    """Where the run was made: noted with its first report, which the run itself writes, and read from then on."""
    path = run_dir / MACHINE
    if not path.exists():
        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
        write_json(path, {"processor": _processor(), "cores": cores(), "gpu": gpu, "torch": torch.__version__})
    return {key: str(value) for key, value in _read_object(path).items() if value is not None}


def _processor() -> str:
    """The processor's name where the system tells it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


# -- the head of the page ---------------------------------------------------------------------------------------


def _lead(story: Story) -> str:
    """How far it was trained, in one sentence."""
    steps, tokens = (story.history.series("train", key) for key in ("elapsed", "tokens"))
    if not steps:
        return str(story.recipe.get("description") or "")
    seen = f" on {readable(tokens[-1][1])} tokens" if tokens else ""
    return f"Trained for {steps[-1][0]:,.0f} steps{seen}, in {duration(steps[-1][1])}."


def _facts(story: Story) -> list[tuple[str, str, str]]:
    """Tiles: name, value, detail."""
    made, history, machine = [], story.history, story.machine
    metrics = _metrics(story)
    chosen = (story.recipe.get("training") or {}).get("metric")  # by which the best weights were
    wanted = (*([chosen] if chosen not in (None, "loss") else []), *QUALITY, "perplexity")
    headline = next((key for key in wanted if key in metrics), None)
    if headline:
        made.append((titled(headline), shown(headline, metrics[headline]), _where(story)))
    if story.parameters:
        made.append(("Parameters", readable(float(story.parameters)), f"{story.parameters:,}"))
    seconds = history.last("train", "elapsed")
    if seconds is not None:
        made.append(("Training time", duration(seconds), ""))
    speed, mfu = (history.median("train", key) for key in ("tokens_per_s", "mfu"))
    if speed is not None:
        made.append(("Tokens per second", readable(speed), f"median; MFU {mfu:.0%}" if mfu else "median"))
    if machine.get("processor"):
        cores = f"{machine['cores']} core{'s' if str(machine['cores']) != '1' else ''}" if "cores" in machine else ""
        detail = ", ".join(filter(None, (cores, machine.get("gpu"))))
        made.append(("Machine", machine["processor"], detail))
    if machine.get("torch"):
        made.append(("PyTorch", machine["torch"], ""))
    return made


# -- sections ---------------------------------------------------------------------------------------------------


def learning(story: Story) -> Section | None:
    """Loss and quality, large; learning rate, gradient norm and throughput, small."""
    history = story.history
    # Training's "nll" is what evaluation calls its loss: the plain likelihood, without label smoothing.
    losses = [
        Series("train", history.series("train", "nll") or history.series("train", "loss")),
        Series("validation", history.series("eval", "loss"), dots=True),
    ]
    quality = [
        Series(titled(key), [(x, scaled(key, y)) for x, y in history.series("eval", key)], dots=True) for key in QUALITY
    ]
    large = [
        line_chart("Loss" if story.task else "Loss (nats per token)", losses),
        line_chart("Quality on held-out data", quality, zero=True)
        or line_chart(
            "Perplexity on held-out data", [Series("perplexity", history.series("eval", "perplexity"), True)]
        ),
    ]
    small = [
        line_chart(title, [Series(title, history.series("train", key))], width=300, height=180, zero=True, show=show)
        for title, key, show in (
            ("Learning rate", "lr", readable),
            ("Gradient norm", "grad_norm", readable),
            ("Tokens per second", "tokens_per_s", readable),
            ("Model FLOPs utilization", "mfu", _percent),
        )
    ]
    if not any([*large, *small]):
        return None
    bad = history.count("bad step")
    note = f"{bad:,} steps with a loss or gradient that was not finite made no update." if bad else ""
    return Section("Learning", join(_row("charts", large), _row("charts small", small)), note)


def results(story: Story) -> Section | None:
    """The metrics of the weights delivered, each with the signature of its computation."""
    rows = [(titled(key), shown(key, value), _how(story, key)) for key, value in _metrics(story).items()]
    if not rows:
        return None
    notes = [f"{_where(story)}.", *(f"{note}." for note in story.evaluation.get("notes") or ())]
    return Section("Results", Markup(render("metrics.html", rows=rows)), " ".join(notes))


def _how(story: Story, key: str) -> str:
    """How a metric was computed, and on how many examples where that is not all of them."""
    how = (story.evaluation.get("signatures") or {}).get(key) or (HOW.get(key, "") if not story.task else "")
    covered = (story.evaluation.get("counts") or {}).get(key)
    return how if covered is None else f"{how}; over {covered:,} examples".removeprefix("; ")


def samples(story: Story) -> Section | None:
    """Outputs beside the truth, marked right or wrong; in a wrong one, what the truth does not have is underlined. Numbers
    are neither."""
    chosen = story.samples[:_SHOWN]
    if not chosen:
        return None
    views = []
    for sample in chosen:
        output, target = str(sample["output"]), sample.get("target")
        right = is_right(sample) if target is not None and not sample.get("graded") else None
        views.append(
            {
                "source": sample.get("source", ""),
                "output": output if right is not False else marked(output, str(target)),
                "target": target,
                "right": right,
                "picture": pictures.draw(sample["picture"]) if sample.get("picture") else None,
                "score": readable(sample["score"]) if isinstance(sample.get("score"), float) else None,
            }
        )
    judged = [view["right"] for view in views if view["right"] is not None]
    note = f"{sum(judged)} of these {len(judged)} equal the truth." if judged else ""
    return Section("Samples", Markup(render("samples.html", samples=views)), note)


def attention(story: Story) -> Section | None:
    """Where the model looks, in two of the samples: drawn anew where the run loads, else from `attention.json`."""
    if not story.samples or story.task:  # a task's samples are not what a text model read and wrote
        return None
    path = story.run_dir / ATTENTION
    try:
        made = _look(story)
        picture.save(path, made)
    except (OSError, ValueError) as error:
        made = picture.load(path)
        if not made:
            return Section("Attention", Markup(""), f"Not drawn, because the run can't be loaded: {error}")
    if not made:
        return None
    made = [one for one in made if one.layers]
    if not made:
        return Section("Attention", Markup(""), "This model's mechanism has no weights to draw.")
    own = made[0].rows == made[0].columns
    what = "Each row is a token, the columns what it looks at" if own else "Source tokens across, target tokens down"
    note = f"{what}; the stronger the ink, the more of a row's attention goes there. Point at a cell for its weight."
    return Section("Attention", _row("pictures", [p.draw() for p in made]), note)


SECTIONS: list[Callable[[Story], Section | None]] = [learning, results, samples, attention, contextual.senses]


# -- attention of samples ---------------------------------------------------------------------------------------


def _look(story: Story) -> list[picture.Picture]:
    """The attention of two samples in the trained model. Raises ValueError where the run can't be loaded."""
    from ...inference.run import load

    run = load(story.run_dir, device="cpu")
    return [_picture(run, sample) for sample in choose(story.samples)]


def choose(samples: Sequence[Mapping[str, Any]], count: int = _PICTURED) -> list[Mapping[str, Any]]:
    """The samples whose attention says most: right ones first, then one of each first word (target tag), then long."""
    chosen: list[Mapping[str, Any]] = []
    rest = [sample for sample in samples if sample["output"]]
    while rest and len(chosen) < count:
        seen = {_first_word(sample) for sample in chosen}
        best = max(rest, key=lambda s: (is_right(s), _first_word(s) not in seen, _length(s)))
        rest.remove(best)
        chosen.append(best)
    return chosen


def is_right(sample: Mapping[str, Any]) -> bool:
    """Whether output and truth are the same but for space around them, as `exact_match` counts."""
    target = sample.get("target")
    return target is not None and str(sample["output"]).strip() == str(target).strip()


def _first_word(sample: Mapping[str, Any]) -> str:
    return next(iter(str(sample.get("source", "")).split()), "")


def _length(sample: Mapping[str, Any]) -> int:
    """Characters, as far as they make a picture worth more: a very long one is only harder to read."""
    length = len(str(sample.get("source", "")))
    return length if length <= 60 else 60 - length


def _picture(run: Run, sample: Mapping[str, Any]) -> picture.Picture:
    text, model = run.text_model, run.model
    tokenizer = text.tokenizer
    source, output = str(sample.get("source", "")), str(sample["output"])
    read = text.encode(source)
    if model.is_encoder_decoder:
        written = tokenizer.encode(output, eos=True)
        fed = [text.start, *written[:-1]]
        maps = capture.attention(model, _ids(read, model), _ids(fed, model), choose=capture.cross)
        return picture.Picture.of(source, tokenizer.tokens(written), text.reader.tokens(read), maps)
    ids = [*read, *tokenizer.encode(output)][: picture.MOST_TOKENS]
    maps = capture.attention(model, _ids(ids, model), choose=capture.own)
    return picture.Picture.of(source + output, tokenizer.tokens(ids), tokenizer.tokens(ids), maps)


def _ids(ids: Sequence[int | None], model: AnyModel) -> torch.Tensor:
    return torch.tensor([list(ids)], device=model.device)


# -- words ------------------------------------------------------------------------------------------------------


def _metrics(story: Story) -> dict[str, float]:
    """Of the weights delivered where they were evaluated, else of the last evaluation on the way."""
    found = story.evaluation.get("metrics")
    if found:
        return {key: _number(value) for key, value in found.items() if isinstance(value, int | float | None)}
    last = {key: story.history.last("eval", key) for key in story.history.keys("eval") if key != "elapsed"}
    return {key: value for key, value in last.items() if value is not None}


def _number(value: float | None) -> float:
    """A number of `evaluation.json`, where null stands for one that is not finite."""
    return math.nan if value is None else value


def _where(story: Story) -> str:
    """What the metrics were measured on."""
    split, examples = story.evaluation.get("split"), story.evaluation.get("examples")
    if split:
        return f"{split} split, {taken(story.evaluation)}" if isinstance(examples, int) else f"{split} split"
    return "last evaluation while training"


def _percent(value: float) -> str:
    return f"{readable(100 * value)}%"


def _row(class_: str, parts: Sequence[Markup]) -> Markup:
    kept = [part for part in parts if part]
    return tag("div", *kept, class_=class_) if kept else Markup("")
