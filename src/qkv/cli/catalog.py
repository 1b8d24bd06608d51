"""`qkv list`: list recipes, presets, the Hub's families, metrics and the kinds of every part, with one line about each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from .options import Json, Overwrite
from .say import console, echo_json

if TYPE_CHECKING:
    from ..nn.patterns.gallery import Example

Row = tuple[str, str]
LENGTH = 4096  # tokens of the row whose pairs are counted
DRAWN, SAVED = 16, 64  # tokens in the pictures of the terminal, and of files


def list_(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="WHAT",
            help="recipes, presets, families or metrics; parts of models: patterns, positions, scalings, scores, "
            "weightings, mechanisms, feedforwards, norms, placements, inputs, heads, caches, speculations; of training: "
            "objectives, rewards, optimizers, schedules, averages, adapters; of data: sources, tasks, tokenizers, "
            "augmentations, mixings, perturbations (of sounds).",
            autocompletion=lambda incomplete: [name for name in LISTS if name.startswith(incomplete)],
        ),
    ] = None,
    json: Json = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write pictures of all patterns or positions to DIR.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """List recipes, presets, the Hub's families, metrics, or the kinds of a part, with a line about each."""
    if what is None:
        raise ValueError(f"list what? One of {', '.join(LISTS)}")
    from ..core.registry import import_installed

    import_installed()
    if what not in LISTS:
        from ..core.spec import brief, meant

        raise ValueError(f"there is no list of {brief(what)}; {meant(what, LISTS, _MEANINGS)}")
    if out is not None:
        if what not in ("patterns", "positions"):
            raise ValueError(f"--out is for the pictures of patterns and positions, and {what} have none; leave it out")
        _save(out, overwrite) if what == "patterns" else _save_positions(out, overwrite)
    elif overwrite:
        raise ValueError("--overwrite replaces the pictures of --out; give --out too")
    if what == "patterns" and not json:
        _draw()
        return
    rows = LISTS[what]()
    if json:
        echo_json(dict(rows))
        return
    from rich.table import Table

    table = Table(title=what, title_justify="left", box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for row in rows:
        table.add_row(*map(_plain, row))
    console().print(table)


_MEANINGS = {  # words of the field for what a list has
    "presets": "models model architectures architecture zoo checkpoints gpt2 bert llama t5",
    "families": "family hub huggingface transformers classes auto",
    "recipes": "experiments configs configurations examples templates",
    "patterns": "masks mask windows window sparse causal",
    "positions": "embeddings encodings rope rotary alibi positional",
    "scalings": "rope-scaling yarn ntk",
    "mechanisms": "attention attentions layers mixers",
    "weightings": "softmax soft-max",
    "feedforwards": "mlp ffn feedforward feed-forward moe experts",
    "norms": "normalization normalizations layernorm rmsnorm",
    "placements": "prenorm pre-norm postnorm post-norm deepnorm",
    "caches": "kv-cache kv cache",
    "objectives": "loss losses criteria",
    "optimizers": "optim adam adamw sgd muon",
    "schedules": "scheduler schedulers lr warmup cosine",
    "averages": "ema swa",
    "adapters": "lora peft qlora adapter",
    "sources": "data datasets dataset readers formats",
    "tasks": "task",
    "tokenizers": "bpe wordpiece unigram sentencepiece",
    "augmentations": "augment augmentation transforms randaugment",
    "mixings": "mixup cutmix",
    "perturbations": "specaugment vtlp speed noise",
    "metrics": "metric bleu accuracy f1 evaluation",
}


def _recipes() -> list[Row]:
    from ..core import yamls
    from ..runs.recipes.packaged import packaged

    return [(name, str(yamls.load(text, name)["description"])) for name, text in packaged().items()]


def _parameters(spec: Any) -> str:
    """The number of parameters, and of those that a token uses if a mixture of experts leaves some out."""
    total, active = spec.n_parameters, spec.cost().active
    return f"{total:,} parameters" + ("" if active == total else f", {active:,} active")


def _presets() -> list[Row]:
    """Each preset's sizes, and a description of the first of those that share one."""
    from ..io import families
    from ..nn.models.summary import sizes

    rows, described = list[Row](), set[str]()
    for name, (factory, _) in families.PRESETS.items():
        spec, about = families.preset(name), _line(factory)
        rows.append((name, f"{_parameters(spec)}: {sizes(spec)}. {'' if about in described else about}".rstrip()))
        described.add(about)
    return rows + _kinds({name: cls for name, (cls, _) in families.presets().items() if name not in families.PRESETS})


def _families() -> list[Row]:
    """Each family's classes, the tokenizer files that it comes with, how it differs from transformers, and the version to
    which it was held."""
    from ..data.tokenizers.readers.hub_families import BY_MODEL_TYPE
    from ..io.families import FAMILIES
    from ..io.families.differences import DIFFERENCES
    from ..io.families.held import HELD

    def row(model_type: str) -> Row:
        files = BY_MODEL_TYPE.get(model_type)
        older = f", {files.files} of {files.classes[0]}" if files is not None else ""
        tested = f"equal to transformers {HELD[model_type]}" if model_type in HELD else "not in the table of parity"
        parts = [", ".join(FAMILIES[model_type].classes), f"tokenizers: tokenizer.json{older}", tested]
        if model_type in DIFFERENCES:
            parts.append(f"differs: {DIFFERENCES[model_type]}")
        return model_type, f"{'; '.join(parts)}."

    return [row(model_type) for model_type in FAMILIES]


def _patterns() -> list[Row]:
    from ..nn.patterns.gallery import GALLERY

    papers = {x.spelling: f" {x.paper}." if x.paper else "" for x in GALLERY}
    rows = [(x.spelling, f"{x.about} {_pairs(x)}{papers[x.spelling]}") for x in GALLERY]
    return rows + _patterns_from_outside()


def _positions() -> list[Row]:
    """Each scheme with the criteria that it meets, computed; not of one that needs settings."""
    from ..look.analysis.position_criteria import described
    from ..nn.positions.base import Position

    rows = list[Row]()
    for name, about in _role("positions")():
        with suppress(ValueError, TypeError, NotImplementedError, RuntimeError):
            about += f" {described(cast(Position, Position.kinds[name]()))}"
        rows.append((name, about))
    return rows


def _save_positions(folder: Path, overwrite: bool) -> None:
    """Draw every position scheme that has something to show."""
    from ..core.atomic import write_file
    from ..look.position_pictures import picture
    from ..nn.positions.base import Position

    _claim(folder, (f"{name}.svg" for name in Position.kinds), overwrite)
    names, without = [], []
    for name, kind in Position.kinds.items():
        try:
            drawn = picture(cast(Position, kind()))
        except (
            ValueError,
            TypeError,
            NotImplementedError,
            RuntimeError,
        ):  # it needs settings, or another kind of layout
            drawn = None
        if drawn is None:
            without.append(name)
            continue
        write_file(folder / f"{name}.svg", drawn.encode())
        names.append(f"{name}.svg")
    left_out = f"; nothing to draw without settings or positions: {', '.join(without)}" if without else ""
    console().print(f"{folder}: {', '.join(names)}{left_out}", highlight=False, markup=False, soft_wrap=True)


def _patterns_from_outside() -> list[Row]:
    """Registered kinds that no example in the gallery uses."""
    from ..nn.patterns.basic import Pattern
    from ..nn.patterns.gallery import GALLERY

    shown = {part.kind for example in GALLERY for _, part in example.pattern.walk()}
    return _kinds({kind: cls for kind, cls in Pattern.kinds.items() if kind not in shown})


def _pairs(example: Example) -> str:
    return f"{example.pattern.pairs(LENGTH):,} of {LENGTH**2:,} pairs at n = {LENGTH:,}."


def _draw() -> None:
    """Print a small picture of each pattern beside its description."""
    from rich.table import Table

    from ..nn.patterns.gallery import GALLERY
    from ..nn.patterns.pictures import characters

    table = Table(title="patterns", title_justify="left", show_header=False, show_lines=True, pad_edge=False)
    table.add_column(style="blue", no_wrap=True, min_width=DRAWN)
    table.add_column()
    for example in GALLERY:
        lines = [f"[bold]{_plain(example.spelling)}[/bold]", example.about, _pairs(example), example.paper]
        table.add_row(characters(example.pattern.mask(DRAWN)), "\n".join(filter(None, lines)))
    for kind, about in _patterns_from_outside():
        table.add_row("", f"[bold]{_plain(kind)}[/bold]\n{_plain(about)}")
    console().print(table)


def _save(folder: Path, overwrite: bool) -> None:
    """Write a picture of every pattern, named after its expression."""
    from ..nn.patterns.gallery import GALLERY

    _claim(folder, _pattern_files(), overwrite)
    for example in GALLERY:
        for ending in ("svg", "png"):
            example.pattern.save_picture(folder / f"{_file_name(example)}.{ending}", SAVED)


def _pattern_files() -> Iterator[str]:
    """The names of the pictures of patterns."""
    from ..nn.patterns.gallery import GALLERY

    return (f"{_file_name(example)}.{ending}" for example in GALLERY for ending in ("svg", "png"))


def _file_name(example: Example) -> str:
    return "-".join(re.findall(r"[A-Za-z0-9_]+|~", example.spelling)).replace("~", "not").lower()


def _claim(folder: Path, names: Iterable[str], overwrite: bool) -> None:
    """Make the folder of the pictures of patterns and positions, or check the one that is there; claim the `names`."""
    from ..core.atomic import claim
    from ..io.directories.layout import Contents, claim_folder
    from ..nn.positions.base import Position

    every = (*_pattern_files(), *(f"{name}.svg" for name in Position.kinds))
    claim_folder(folder, Contents("the pictures of qkv list", every))
    for name in names:
        claim(folder / name, overwrite)


ROLES = {
    "positions": "nn.positions.base.Position",
    "scalings": "nn.positions.rope_scaling.Scaling",
    "scores": "nn.attention.scores.Score",
    "mechanisms": "nn.attention.mixer.Mixer",
    "weightings": "nn.attention.weighting.Weighting",
    "feedforwards": "nn.layers.feedforward.FeedForwardLayer",
    "norms": "nn.layers.norm.Norm",
    "placements": "nn.models.placement.Placement",
    "inputs": "nn.layers.embedding.Input",
    "heads": "nn.models.heads.base.Head",
    "caches": "nn.kv_cache.kinds.CacheKind",
    "speculations": "generation.speculation.Speculation",
    "objectives": "training.objective.Objective",
    "rewards": "training.sequence_risk.Reward",
    "optimizers": "training.optimizers.base.Optimizer",
    "schedules": "training.optimizers.schedules.Schedule",
    "averages": "training.weight_averaging.Average",
    "adapters": "nn.layers.lora.Adapter",
    "sources": "data.source.Source",
    "tasks": "data.task.Task",
    "tokenizers": "data.tokenizers.training.spec.TokenizerSpec",
    "augmentations": "data.media.augment.Augmentation",
    "mixings": "data.media.augment.Mixing",
    "perturbations": "data.media.sound_augment.SoundAugmentation",
}
"""The roles whose kinds are listed, by the class that holds their registry."""


def _role(name: str) -> Callable[[], list[Row]]:
    def rows() -> list[Row]:
        from importlib import import_module

        from ..runs.recipes import recipe  # noqa: F401  (register every kind that a recipe may name)
        from ..runs.train import train  # noqa: F401  (register every kind that a recipe may name)

        module, _, base = ROLES[name].rpartition(".")
        kinds = getattr(import_module(f"qkv.{module}"), base).kinds
        return _kinds({kind: cls for kind, cls in kinds.items() if not cls.__module__.startswith("qkv.runs.evaluate.")})

    return rows


def _metrics() -> list[Row]:
    from ..core.metrics.display import display_of, errors, qualities
    from ..runs import tasks

    tasks.import_all()

    def row(name: str, better: str) -> Row:
        about = display_of(name).about or display_of(name).title
        return name, f"{about}; {better} is better."

    return [row(name, "higher") for name in qualities()] + [row(name, "lower") for name in errors()]


LISTS: dict[str, Callable[[], list[Row]]] = {
    "recipes": _recipes,
    "presets": _presets,
    "families": _families,
    "patterns": _patterns,
    **{name: _role(name) for name in ROLES},
    "positions": _positions,
    "metrics": _metrics,
}


def _kinds(kinds: Any) -> list[Row]:
    return [(name, f"{_line(member)} {_origin(member)}".strip()) for name, member in kinds.items()]


def _origin(thing: Any) -> str:
    """The module of a part that is defined outside qkv, as a sentence."""
    return "" if thing.__module__.split(".")[0] == "qkv" else f"From {thing.__module__}."


def _line(thing: Any) -> str:
    """The first sentence of a docstring, on one line; `et al.` and `eq.` end none."""
    thing = getattr(thing, "func", thing)  # of a partial, what it calls
    paragraph = " ".join((thing.__doc__ or "").strip().split("\n\n")[0].split())
    sentence = re.split(r"(?<!al)(?<!eq)\. ", paragraph, maxsplit=1)[0]
    return f"{sentence.rstrip('.:')}." if sentence else ""


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
