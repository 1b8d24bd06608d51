"""The settings of generation that a recipe takes over from the trained model that it continues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...core import yamls
from ...core.spec import brief
from ...generation import Generation
from ...generation.settings import SAMPLING
from ...io.directories.layout import GENERATION, RECIPE, read_text
from ...io.directories.locate import is_hub, locate
from ...io.directories.origin import Origin
from ...io.directories.run_config import read_generation
from ...io.directories.spec import origin_of, spec_of
from ...io.hub.generation import FIELDS, IDS
from ...io.hub.generation import SAMPLING as HUB_SAMPLING
from ...nn.models.base import ModelSpec

BEAMS = ("num_beams", "length_penalty", "early_stopping")
LENGTHS = ("max_new_tokens", "min_new_tokens")


def in_tree(tree: dict[str, Any], directory: str, paths: list[list[str]]) -> dict[str, Any]:
    """A recipe's tree into which settings at these paths put the trained model in a directory: what the directory settles
    replaces the recipe's settings of generation, but not those at the paths. An error is left to validation."""
    own = tree.get("generation", {})
    if ["generation"] in paths or not isinstance(own, dict):
        return tree
    try:
        settled = said(directory, str(tree.get("name")))
        if not settled:
            return tree
        bound = {"max_new_tokens"} if _bounds_whole(directory) else set()
    except (ValueError, OSError):
        return tree
    given = {path[1]: own[path[1]] for path in paths if path[0] == "generation" and path[1] in own}
    kept = {name: value for name, value in own.items() if name not in {*settled, *bound}}
    longest, shortest = kept.get("max_new_tokens"), settled.get("min_new_tokens", 0)
    if isinstance(longest, int) and longest < shortest:
        kept["max_new_tokens"] = shortest
    return {**tree, "generation": {**kept, **_over(settled, given)}}


def completed(generation: Generation, directory: str, recipe: str) -> Generation:
    """The settings of generation of a recipe, with what the trained model's directory settles and the recipe leaves out."""
    given = {name: getattr(generation, name) for name in generation.model_fields_set}
    settled = said(directory, recipe)
    return Generation.from_dict(_over(settled, given)) if settled.keys() - given else generation


def said(directory: str, recipe: str) -> dict[str, Any]:
    """The fields of `Generation` that a trained model's directory settles, which count before those of the recipe with this
    name: what a Hub directory says, and a run that was trained from one, or by the same recipe. {} if it settles none."""
    if not _generates(spec_of(directory)):
        return {}
    folder, origin = locate(directory), origin_of(directory)
    if not folder.is_dir() or is_hub(folder):
        return {**dict.fromkeys(SAMPLING), **origin.fields} if origin is not None and _speaks(origin) else {}
    if not (folder / GENERATION).is_file() or (origin is None and _recipe_of(folder) != recipe):
        return {}
    settings = read_generation(folder / GENERATION, spec_of(directory).is_encoder_decoder)
    return _fields(settings if origin is None else origin.ids.unbounded(settings))


def _over(settled: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a directory settles under those that are given: what can't stand beside the latter is left out."""
    beams, low, high = (given.get(name) for name in ("num_beams", "min_new_tokens", "max_new_tokens"))
    gone: set[str] = set()
    if given.get("do_sample") is False or (isinstance(beams, int) and beams > 1):
        gone |= {"do_sample", *SAMPLING}
        gone |= set() if beams else {"num_samples"}
    if given.get("do_sample") or any(given.get(name) is not None for name in SAMPLING):
        gone |= {*BEAMS} if beams is None else set()
        gone |= {"do_sample"} if not settled.get("do_sample") else set()
    if isinstance(high, int) and high < settled.get("min_new_tokens", 0):
        gone.add("min_new_tokens")
    if isinstance(low, int) and low > settled.get("max_new_tokens", low):
        gone.add("max_new_tokens")
    return {**{name: value for name, value in settled.items() if name not in gone}, **given}


def notes(generation: Generation, directory: str, recipe: str) -> Iterator[str]:
    """What to say of the settings that a training takes over from a directory."""
    settled, usual = said(directory, recipe), Generation()
    if not settled:
        return
    completed_by = completed(generation, directory, recipe)
    kept = [n for n, value in settled.items() if _is(completed_by, n, value) and not _is(usual, n, value)]
    values = ", ".join(f"{name}={brief(settled[name])}" for name in kept) or "greedily"
    yield f"Outputs are generated as {directory} says: {values} (generation.{(kept or ['num_beams'])[0]} changes it)."


def _is(settings: Generation, name: str, value: Any) -> bool:
    return bool(settings.to_dict()[name] == value)


def _generates(spec: ModelSpec) -> bool:
    return spec.predicts_tokens and getattr(spec, "decoder", spec) is not None


def _fields(settings: Generation) -> dict[str, Any]:
    plain = settings.to_dict()
    return {name: plain[name] for name in Generation.model_fields if name in settings.model_fields_set}


def _speaks(origin: Origin) -> bool:
    """Whether a Hub directory says how to generate: in a file for it, or as old ones do in its configuration."""
    keys = {*(theirs for theirs, _, _ in (*FIELDS, *HUB_SAMPLING)), *LENGTHS, "max_length", "min_length"} - {*IDS}
    return origin.generation is not None or not keys.isdisjoint(origin.config)


def _bounds_whole(directory: str) -> bool:
    """Whether a directory bounds whole sequences, the prompt included, and not new tokens."""
    origin = origin_of(directory)
    return origin is not None and origin.ids.whole[0] is not None


def _recipe_of(folder: Path) -> str | None:
    """The name of the recipe of a run."""
    path = folder / RECIPE
    try:
        data = yamls.load(read_text(path), str(path)) if path.is_file() else None
    except ValueError:  # loading the model says so
        return None
    return data.get("name") if isinstance(data, dict) else None
