"""Read how a sentence-transformers directory makes vectors: the pooling, the normalization, the prompt.

`modules.json` lists the steps after tokens: the Transformer, a pooling, perhaps a normalization. Any other step, such as a
dense layer, would change every vector, and is refused where vectors are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from ..hub.values import Flag, Kind, List, Maybe, Object, Whole, Word, shown
from .layout import read_json, read_text, write_text

MODULES, SETTINGS = "modules.json", ("sentence_bert_config.json", "config_sentence_transformers.json")
Pooling = Literal["mean", "cls", "last", "max", "none"]

POOLINGS: dict[str, Pooling] = {"mean_tokens": "mean", "cls_token": "cls", "max_tokens": "max", "lasttoken": "last"}
NAMES: dict[str, Pooling] = {"mean": "mean", "cls": "cls", "max": "max", "lasttoken": "last"}


@dataclass(frozen=True)
class Sentences:
    """How texts become vectors.

    longest: maximum number of tokens, special tokens included; longer texts are truncated.
    prompt:  prepended to every text.
    lower:   whether texts are lower-cased.
    """

    pooling: Pooling = "mean"
    normalize: bool = False
    longest: int | None = None
    prompt: str = ""
    lower: bool = False


def read(folder: Path) -> Sentences | None:
    """How a directory makes vectors, or None where it has no `modules.json`.

    Raises ValueError naming the file and what is not known.
    """
    if not (folder / MODULES).is_file():
        return None
    steps = _steps(folder)
    if [kind for kind, _ in steps[:2]] != ["Transformer", "Pooling"] or len(steps) > 3:
        kinds = " → ".join(kind for kind, _ in steps)
        raise ValueError(f"{folder / MODULES} makes vectors by {shown(kinds)}; {_KNOWN}")
    if len(steps) == 3 and steps[2][0] != "Normalize":
        raise ValueError(f"{folder / MODULES} ends in {shown(steps[2][0])}, which is not built here; {_KNOWN}")
    settings = _object(folder / SETTINGS[0], {"max_seq_length": Whole(1, 1 << 30), "do_lower_case": Flag()})
    prompt, pooled = _prompt(folder / SETTINGS[1]), _pooling(folder / steps[1][1] / "config.json")
    pooling, includes_prompt = pooled
    if prompt and not includes_prompt:
        raise ValueError(f"{folder / steps[1][1]} leaves the prompt out of the pooling, which is not built here")
    return Sentences(
        pooling, len(steps) == 3, settings.get("max_seq_length"), prompt, bool(settings.get("do_lower_case", False))
    )


_KNOWN = (
    "known are a Transformer, a Pooling and a Normalize; pooling='none' (--pooling none) gives the tokens' states alone"
)


def copy(folder: Path, target: Path) -> None:
    """Copy the sentence-transformers settings of one directory to another, without the files of unknown steps."""
    if not (folder / MODULES).is_file():
        return
    paths = [f"{path}/config.json" for kind, path in _steps(folder) if kind == "Pooling"]
    for name in (*paths, *SETTINGS, MODULES):
        if (folder / name).is_file():
            (target / name).parent.mkdir(exist_ok=True)
            write_text(target / name, read_text(folder / name))


def _steps(folder: Path) -> list[tuple[str, str]]:
    """Each step's kind and its folder."""
    steps = read_json(folder / MODULES)
    entry = Object({"type": Word(), "path": Word()}, 64)
    List(entry, 64, 1).check(steps, str(folder / MODULES))
    named_steps = []
    for i, step in enumerate(steps):
        entry.check(step, f"{folder / MODULES}: {i}")
        path = step.get("path") or ""
        if Path(path).is_absolute() or "\\" in path or len(Path(path).parts) > 1 or ".." in path:
            raise ValueError(f"{folder / MODULES} names the folder {shown(path)}; a step's folder lies beside it")
        named_steps.append((str(step.get("type")).rpartition(".")[2], path))
    return named_steps


def _pooling(path: Path) -> tuple[Pooling, bool]:
    """The pooling, and whether it includes the tokens of the prompt."""
    if not path.is_file():
        raise ValueError(f"{path} is missing, which says how tokens are pooled")
    config = _object(path, {"include_prompt": Flag(), "pooling_mode": Word()})
    modes = [name.removeprefix("pooling_mode_") for name, on in config.items() if name[:13] == "pooling_mode_" and on]
    named = config.get("pooling_mode")
    chosen = [NAMES.get(named)] if named is not None else [POOLINGS.get(name) for name in modes or ["mean_tokens"]]
    if len(chosen) != 1 or chosen[0] is None:
        requested = shown(named if named is not None else ", ".join(modes))
        raise ValueError(f"{path} pools by {requested}, which is not built here; there is one of {', '.join(NAMES)}")
    return chosen[0], config.get("include_prompt") is not False


def _prompt(path: Path) -> str:
    config = _object(path, {"prompts": Object(most=4096), "default_prompt_name": Word()})
    name, prompts = config.get("default_prompt_name"), config.get("prompts") or {}
    if name is None:
        return ""
    if not isinstance(prompts.get(name), str):
        raise ValueError(f"{path}: default_prompt_name is {shown(name)}, and prompts has no such text")
    return cast("str", prompts[name])


def _object(path: Path, inside: Mapping[str, Kind]) -> Mapping[str, Any]:
    """A JSON object; an empty one where there is no file."""
    content = read_json(path) if path.is_file() else {}
    Object({key: Maybe(kind) for key, kind in inside.items()}, 4096).check(content, str(path))
    return cast("Mapping[str, Any]", content)
