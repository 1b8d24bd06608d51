"""Model cards: `README.md` of a directory in the Hub's format, with a YAML header that the Hub reads.

Everything in a card comes from the run: its recipe, `evaluation.json` and `start.json`. Paths of files are cut to their
names, and examples are shown only of data that qkv generates, since a card is public.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ....core import yamls
from ....core.metrics.display import display_of
from ....core.spec import counted
from ....io.directories.layout import CONFIG, EVALUATION, RECIPE, read_json
from ....io.directories.locate import is_hub
from ....io.hub import huggingface
from ....io.hub.quantized.config import quantization_of
from ....nn.layers.quantized import quantized as is_quantized
from ..loaded import LoadedModel
from .usage import pipeline_of, usage

_LANGUAGE = re.compile(r"[a-z]{2,3}([-_][A-Za-z0-9]{2,8})*")


def model_card(
    run: LoadedModel, folder: Path, name: str, license: str | None = None, languages: tuple[str, ...] = ()
) -> str:
    """The text of a card for the directory `folder` in the Hub's format, which will be loaded as `name`.

    license:   an identifier of the Hub, such as apache-2.0; without one the card names none.
    languages: codes such as de; by default, what the recipe's data say.
    """
    recipe = {} if run.recipe is None else run.recipe.to_dict()
    evaluation = _evaluation(run)
    architecture = str((read_json(folder / CONFIG).get("architectures") or ["QkvModel"])[0])
    header = _header(run, folder, name, recipe, evaluation, license, languages or _languages(recipe))
    sections = (
        f"# {name.rpartition('/')[2]}\n\n{_summary(run, recipe)}",
        f"## How to use it\n\n{usage(run, folder, name, architecture)}",
        _table("## Data", ("", ""), _data(recipe, run)),
        _training(run, recipe),
        _results(evaluation),
        "## Limits\n\n" + "\n".join(f"- {limit}" for limit in _limits(run, recipe, evaluation)),
    )
    text = "\n\n".join(section for section in sections if section)
    return f"---\n{yamls.dump(header)}---\n\n{text}\n"


def _evaluation(run: LoadedModel) -> dict[str, Any]:
    """Return the evaluation in the run's directory; nothing if there is none."""
    if run.path is None or not (run.path / EVALUATION).is_file():
        return {}
    found = read_json(run.path / EVALUATION)
    return found if isinstance(found, dict) and isinstance(found.get("metrics"), dict) else {}


def _rounded(run: LoadedModel) -> bool:
    """Whether the weights were quantized after the evaluation in the run's directory."""
    if not is_quantized(run.model) or run.path is None or not (run.path / CONFIG).is_file():
        return False
    return quantization_of(read_json(run.path / CONFIG), run.path) is None


def _measured(evaluation: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for metric, value in evaluation.get("metrics", {}).items():
        if isinstance(value, int | float) and math.isfinite(value):
            yield metric, float(value)


def _header(
    run: LoadedModel,
    folder: Path,
    name: str,
    recipe: Mapping[str, Any],
    evaluation: Mapping[str, Any],
    license: str | None,
    languages: tuple[str, ...],
) -> dict[str, Any]:
    """The fields of the Hub's YAML header; those that aren't known are left out."""
    pipeline, family = pipeline_of(run), is_hub(folder)
    base, datasets = _base(run, recipe), _datasets(recipe)
    header: dict[str, Any] = {
        "language": list(languages),
        "license": license,
        "library_name": "transformers" if family else "qkv",
        "pipeline_tag": pipeline,
        "base_model": base,
        "datasets": datasets,
        "tags": ["qkv", *([str(recipe["name"])] if recipe.get("name") else [])],
    }
    metrics = list(_measured(evaluation)) if not _rounded(run) else []
    if metrics:
        header["metrics"] = [metric for metric, _ in metrics]
        header["model-index"] = [{"name": name.rpartition("/")[2], "results": [_result(run, recipe, evaluation)]}]
    return {key: value for key, value in header.items() if value}


def _result(run: LoadedModel, recipe: Mapping[str, Any], evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of the evaluation in the form of `model-index`; a signature says how a metric was computed."""
    data, signatures = _kind(recipe, "data") or "data", evaluation.get("signatures", {})
    named = (_datasets(recipe) or [data])[0]
    return {
        "task": {"type": pipeline_of(run) or "other"},
        "dataset": {"type": named, "name": named, "split": str(evaluation.get("split", "test"))},
        "metrics": [
            {
                "type": metric,
                "name": display_of(metric).title,
                "value": value,
                **({"args": {"signature": signatures[metric]}} if metric in signatures else {}),
            }
            for metric, value in _measured(evaluation)
        ],
    }


def _kind(recipe: Mapping[str, Any], part: str) -> str:
    found = recipe.get(part)
    return str(found.get("kind", "")) if isinstance(found, Mapping) else ""


def _languages(recipe: Mapping[str, Any]) -> tuple[str, ...]:
    """The codes of the languages that the recipe's data name."""
    data = recipe.get("data") or {}
    found = [data.get("source_language"), data.get("target_language"), data.get("language")]
    if _kind(recipe, "data") == "localise":
        found = ["en", *data.get("languages", ())]
    codes = [code for code in found if isinstance(code, str) and _LANGUAGE.fullmatch(code)]
    return tuple(dict.fromkeys(code.replace("_", "-") for code in codes))


def _datasets(recipe: Mapping[str, Any]) -> list[str]:
    """The names of datasets on the Hub that the run was trained on."""
    data = recipe.get("data") or {}
    path = data.get("path")
    known = _kind(recipe, "data") == "datasets" and isinstance(path, str) and huggingface.is_id(path)
    return [str(path)] if known and not Path(str(path)).exists() else []


def _base(run: LoadedModel, recipe: Mapping[str, Any]) -> str | None:
    """The repository of the model that the run was trained from, or that it is itself."""
    directory = (recipe.get("model") or {}).get("directory")
    if isinstance(directory, str):
        found = huggingface.named(directory)
        return found.repository if found is not None and not Path(directory).exists() else None
    cached = next((part for part in (run.path.parts if run.path else ()) if part.startswith("models--")), None)
    return None if cached is None else cached.removeprefix("models--").replace("--", "/", 1)


def _summary(run: LoadedModel, recipe: Mapping[str, Any]) -> str:
    about = str(recipe.get("description") or "").strip()
    own = "" if run.recipe is None else f" It was trained with the recipe `{recipe['name']}`."
    model = f"{run.model.spec!r}, {counted(run.model.spec.n_parameters, 'parameter')}"
    return (f"{about}\n\n" if about else "") + f"A model of [qkv](https://pypi.org/project/qkv): {model}.{own}"


def _data(recipe: Mapping[str, Any], run: LoadedModel) -> Iterator[tuple[str, str]]:
    """Rows on the data: their kind, their settings with paths cut to names, and how many there were."""
    data = recipe.get("data") or {}
    for key, value in data.items():
        if value not in (None, "", [], {}, ()) and key != "kind":
            shown = _without_folders(value)
            yield f"`{key}`", f"`{', '.join(map(str, shown)) if isinstance(shown, list) else shown}`"
    if data:
        yield "kind", f"`{data.get('kind')}`"
    start = _start(run)
    if start.get("examples"):
        yield "examples", str(start["examples"])


def _without_folders(value: Any) -> Any:
    """A setting in which paths have lost their folders, which can name a person or a project."""
    if isinstance(value, Mapping):
        return {key: _without_folders(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_folders(item) for item in value]
    return (
        re.split(r"[/\\]", value)[-1] if isinstance(value, str) and re.match(r"[/~]|\.{1,2}/|[A-Z]:", value) else value
    )


def _start(run: LoadedModel) -> dict[str, Any]:
    path = None if run.path is None else run.path / "start.json"
    found = read_json(path) if path is not None and path.is_file() else {}
    return found if isinstance(found, dict) else {}


def _training(run: LoadedModel, recipe: Mapping[str, Any]) -> str:
    """The settings that decide most, and where the rest stands."""
    if not recipe:
        return ""
    training, start = recipe.get("training") or {}, _start(run)
    optimizer, schedule = training.get("optimizer") or {}, training.get("schedule") or {}
    limits = (
        counted(training[key], key.removeprefix("max_").removesuffix("s"))
        for key in ("max_steps", "max_epochs")
        if training.get(key) is not None
    )
    rows = [
        ("objective", _kind(recipe, "objective")),
        ("optimizer", f"{optimizer.get('kind')}, peak learning rate {optimizer.get('lr')}"),
        ("schedule", str(schedule.get("kind") or "")),
        ("length", " or ".join(limits)),
        ("tokens in a batch, with padding", str((recipe.get("batching") or {}).get("tokens", ""))),
        ("precision", str(training.get("precision", ""))),
        ("adapter", _kind(recipe, "adapter")),
        ("device", str(start.get("device") or "")),
        ("began", str(start.get("date") or "")),
    ]
    told = (
        f"`{RECIPE}` beside this card holds every setting: `qkv train {RECIPE}` repeats the training on the same data."
    )
    return _table("## Training", ("", ""), [row for row in rows if row[1]]) + f"\n\n{told}"


def _results(evaluation: Mapping[str, Any]) -> str:
    """A table of the metrics with their signatures, and of what simple methods reach on the same examples."""
    signatures, baselines = evaluation.get("signatures", {}), evaluation.get("baselines") or ()
    rows = [
        (display_of(metric).title, f"{value:.5g}", f"`{signatures[metric]}`" if metric in signatures else "")
        for metric, value in _measured(evaluation)
    ]
    if not rows:
        return ""
    for baseline in baselines:
        values = ", ".join(f"{key} {value:.5g}" for key, value in (baseline.get("metrics") or {}).items())
        rows.append((f"{baseline.get('name')} (a simple method)", values, str(baseline.get("about") or "")))
    split, number = evaluation.get("split", "test"), evaluation.get("examples", 0)
    of = f" of {evaluation['available']:,}" if evaluation.get("available") not in (None, number) else ""
    title = f"## Evaluation\n\nOn {number:,}{of} {evaluation.get('unit', 'example')}s of the split `{split}`:"
    return _table(title, ("metric", "value", "computed as"), rows)


def _limits(run: LoadedModel, recipe: Mapping[str, Any], evaluation: Mapping[str, Any]) -> Iterator[str]:
    """What the model was not measured on, and what it can't take."""
    if not evaluation:
        yield "No evaluation was recorded, so nothing is known about how good its outputs are."
    elif _rounded(run):
        yield "The figures above are those of the weights before they were quantized."
    if evaluation:
        yield "It was evaluated on the split named above alone; on other data the figures can be worse."
        number, available = evaluation.get("examples", 0), evaluation.get("available")
        if number < 200:
            yield f"{counted(number, 'example')} are few: the figures are partly chance."
        elif available not in (None, number):
            yield f"The evaluation left out {available - number:,} examples of the split."
        yield from (str(note) for note in evaluation.get("notes") or () if "/" not in str(note))  # a path names people
    if (longest := getattr(run.model.spec, "max_positions", None)) is not None:
        yield f"An input and its output have at most {longest:,} positions each."
    if recipe and not _languages(recipe) and run.tokenizer is not None:
        yield "Languages and topics other than those of the training data were not tried."
    yield "It repeats what its data say, mistakes and prejudices included."


def _table(title: str, head: tuple[str, ...], rows: Any) -> str:
    """A Markdown table under a title; nothing for no rows."""
    lines = [" | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) for row in rows]
    if not lines:
        return ""
    top = [" | ".join(head), " | ".join("---" for _ in head)]
    return f"{title}\n\n" + "\n".join(f"| {line} |" for line in [*top, *lines])
