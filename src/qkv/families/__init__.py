"""Model families, one file each: a factory for any size, named sizes of published models, and tables of the Hub's format."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, overload

from ..core.spec import brief, nearest
from ..hub.family import Family
from ..hub.overrides import changes_to, overrides
from ..models import summary
from ..models.base import ModelSpec
from ..models.recurrent.model import Recurrent
from ..models.transformer import Transformer
from ..positions.base import Position
from . import (
    albert,
    bart,
    bert,
    bigbird,
    bigcode,
    bloom,
    captioner,
    convolutional,
    deit,
    distilbert,
    electra,
    falcon,
    gemma2,
    gemma3,
    gpt2,
    granite,
    llama,
    longformer,
    marian,
    mistral,
    mixtral,
    modernbert,
    mpt,
    neox,
    olmo2,
    openai_gpt,
    pegasus,
    phi3,
    qwen2,
    qwen2_moe,
    qwen3,
    qwen3_moe,
    rnnsearch,
    roberta,
    segmenter,
    smollm3,
    t5,
    vanilla,
    vit,
    vit_mae,
    yolos,
)
from .preset_names import RecurrentName, TransformerName

Factory = Callable[..., Any]  # a Transformer's spec, or another model's

FAMILIES: dict[str, Family] = {
    family.model_type: family
    for family in (
        *(gpt2.FAMILY, openai_gpt.FAMILY, bigcode.FAMILY, neox.FAMILY, bloom.FAMILY, mpt.FAMILY, falcon.FAMILY),
        *(llama.FAMILY, mistral.FAMILY, qwen2.FAMILY, qwen3.FAMILY, gemma2.FAMILY, phi3.FAMILY),
        *(gemma3.FAMILY, smollm3.FAMILY, olmo2.FAMILY, granite.FAMILY),
        *(mixtral.FAMILY, qwen2_moe.FAMILY, qwen3_moe.FAMILY),
        *(
            bert.FAMILY,
            modernbert.FAMILY,
            roberta.FAMILY,
            distilbert.FAMILY,
            electra.FAMILY,
            albert.FAMILY,
            longformer.FAMILY,
            bigbird.FAMILY,
        ),
        *(bart.FAMILY, marian.FAMILY, pegasus.FAMILY, t5.FAMILY, t5.MT5),
        *(vit.FAMILY, deit.FAMILY, vit_mae.FAMILY, yolos.FAMILY),
    )
}
"""The families that the Hub has too, by model type. A spec that several can express is saved as the first of them."""

FACTORIES: tuple[tuple[Factory, dict[str, dict[str, Any]]], ...] = (
    (vanilla.transformer, vanilla.SIZES),
    (gpt2.gpt, {**gpt2.SIZES, **bigcode.SIZES}),
    (openai_gpt.openai_gpt, openai_gpt.SIZES),
    (neox.neox, neox.SIZES),
    (bloom.bloom, bloom.SIZES),
    (mpt.mpt, mpt.SIZES),
    (falcon.falcon, falcon.SIZES),
    (llama.llama, {**llama.SIZES, **mistral.SIZES, **phi3.SIZES}),
    (qwen2.qwen2, qwen2.SIZES),
    (qwen3.qwen3, qwen3.SIZES),
    (gemma2.gemma2, gemma2.SIZES),
    (gemma3.gemma3, gemma3.SIZES),
    (smollm3.smollm3, smollm3.SIZES),
    (olmo2.olmo2, olmo2.SIZES),
    (granite.granite, granite.SIZES),
    (mixtral.mixtral, mixtral.SIZES),
    (qwen2_moe.qwen2_moe, qwen2_moe.SIZES),
    (qwen3_moe.qwen3_moe, qwen3_moe.SIZES),
    (bert.bert, {**bert.SIZES, **roberta.SIZES}),
    (modernbert.modernbert, modernbert.SIZES),
    (distilbert.distilbert, distilbert.SIZES),
    (electra.electra, electra.SIZES),
    (albert.albert, albert.SIZES),
    (longformer.longformer, longformer.SIZES),
    (bigbird.bigbird, bigbird.SIZES),
    (bart.bart, bart.SIZES),
    (marian.marian, marian.SIZES),
    (pegasus.pegasus, pegasus.SIZES),
    (t5.t5, t5.SIZES),
    (vit.vit, vit.SIZES),
    (deit.deit, deit.SIZES),
    (vit_mae.vit_mae, vit_mae.SIZES),
    (yolos.yolos, yolos.SIZES),
    (segmenter.segmenter, segmenter.SIZES),
    (rnnsearch.rnnsearch, rnnsearch.SIZES),
    (convolutional.bytenet, convolutional.BYTENET),
    (convolutional.convs2s, convolutional.CONVS2S),
    (captioner.captioner, captioner.SIZES),
)
PRESETS: dict[str, tuple[Factory, dict[str, Any]]] = {
    name: (factory, sizes) for factory, named in FACTORIES for name, sizes in named.items()
}


@lru_cache(maxsize=256)
def like(spec: Any) -> str | None:
    """The first of the Hub's families that can express a model, by its first two layers; None if none can."""
    if not isinstance(spec, Transformer):
        return None
    stacks = spec.stacks()
    if all(stack.order is None for _, stack in stacks):
        spec = spec.replace({f"{name}.blocks": stack.blocks[:2] for name, stack in stacks})
    for family in FAMILIES.values():
        try:
            _, sizes = family.sizes(spec)
        except (ValueError, TypeError):
            continue
        if not family.unwritable(sizes):
            return family.model_type
    return None


summary.families.append(like)


def presets() -> dict[str, tuple[Factory, dict[str, Any]]]:
    """Every preset, and the kinds of models defined outside qkv, whose sizes are their fields."""
    outside = {kind: cls for kind, cls in ModelSpec.kinds.items() if not cls.__module__.startswith("qkv.")}
    for cls in outside.values():
        cls.model_rebuild()  # a spec's signature exists only after its schema is built
    return {**{kind: (cls, {}) for kind, cls in outside.items()}, **PRESETS}


@overload
def preset(name: TransformerName, **sizes: Any) -> Transformer: ...
@overload
def preset(name: RecurrentName, **sizes: Any) -> Recurrent: ...
@overload
def preset(name: str, **sizes: Any) -> Any: ...
def preset(name: str, **sizes: Any) -> Any:
    """The spec of a named model, with any size changed: `preset("gpt2", n_layers=4, position="alibi")`.

    Raises ValueError with the nearest names for a preset or a size that does not exist.
    """
    known_presets = presets()
    if name not in known_presets:
        raise ValueError(f"there is no preset {brief(name)}; {nearest(name, known_presets)}")
    factory, named = known_presets[name]
    known = inspect.signature(factory).parameters
    for key in sizes:
        if key not in known:
            raise ValueError(f"preset {name!r} has no size {key!r}; {_size_advice(name, key, known)}")
        _check_size(name, known[key], sizes[key])
    if isinstance(sizes.get("position"), str | dict):
        position = sizes["position"]
        sizes["position"] = Position.from_dict({"kind": position} if isinstance(position, str) else position)
    return factory(**{**named, **sizes})


def _size_advice(name: str, key: str, known: Collection[str]) -> str:
    """How to set a field of the model that is not a size of its preset, or else the sizes that there are."""
    if name in PRESETS and key in type(preset(name)).model_fields:
        return f"it is a field of the model: set model.replace.{key}=… in a recipe, or use .replace({key}=…) in Python"
    return nearest(key, known)


_MAY_BE_0 = ("token_types", "labels", "before", "after", "detections")


def _check_size(preset: str, size: inspect.Parameter, value: Any) -> None:
    """Check that integer sizes are integers above 0; those in `_MAY_BE_0` may be 0, optional ones None."""
    if size.annotation not in ("int", "int | None"):
        return
    if value is None and (size.annotation == "int | None" or size.name == "max_positions"):  # none, or no bound
        return
    least = 0 if size.name in _MAY_BE_0 else 1
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"preset {preset!r}: {size.name} is a whole number from {least} on, not {value!r}")


def family_of(spec: ModelSpec, first: str | None = None) -> Family:
    """The family that can express a spec; `first` is tried first.

    Raises ValueError where none can, with all obstacles in the nearest family and, if there are any, overrides of
    `qkv train` that remove them. Of families equally near, one that differs only in the head is named.
    """
    if not isinstance(spec, Transformer):
        raise ValueError(f"no Hub family matches a model of the kind {spec.kind}")
    refusals: list[tuple[tuple[int, bool], Family, list[str]]] = []
    for family in sorted(FAMILIES.values(), key=lambda family: family.model_type != first):
        try:
            _, sizes, differences = family.nearest(spec)
        except (ValueError, TypeError):
            continue  # it doesn't even have the same parts
        unwritable = family.unwritable(sizes)
        obstacles = [*_obstacles(differences), *unwritable]
        if not obstacles:
            return family
        only_head = not unwritable and all(path.startswith("head.") for path in differences)
        refusals.append(((_distance(differences) + len(unwritable), not only_head), family, obstacles))
    if not refusals:
        raise ValueError("no Hub family matches this model: none has the same parts")
    _, family, obstacles = min(refusals, key=lambda refusal: (refusal[1].model_type != first, refusal[0]))
    reasons = "; ".join(obstacles)
    settings = _overrides(family, spec)
    advice = f"; a model trained with {settings} can be saved" if settings else ""
    raise ValueError(f"no Hub family matches this model; {family.model_type} comes nearest: {reasons}{advice}")


def _overrides(family: Family, spec: Transformer) -> str:
    """Overrides with which a recipe's model is one of the family; "" if there are none."""
    try:
        target = family.nearest_spec(spec)
        family.config(spec.replace(changes_to(spec, target)))
        return overrides(spec, target)
    except (ValueError, TypeError, AttributeError):
        return ""


def _distance(differences: Mapping[str, tuple[Any, Any]]) -> int:
    """How many fields differ. A part of another kind counts once; a part that one side lacks counts by its fields."""
    swapped = [
        path.removesuffix("kind") for path, pair in differences.items() if path.endswith(".kind") and None not in pair
    ]
    return sum(not any(path.startswith(part) and path != f"{part}kind" for part in swapped) for path in differences)


def _obstacles(differences: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """The differences (theirs, ours) in words: one for a part of another kind, whatever its fields, and one for all blocks
    that differ in the same way."""
    kinds = sorted(path.removesuffix(".kind") for path in differences if path.endswith(".kind"))
    blocks: dict[tuple[str, str, str, str], list[int]] = {}
    for path, pair in differences.items():
        place = path.removesuffix(".kind")
        if any(place.startswith(f"{part}.") for part in kinds):
            continue
        before, in_block, after = place.partition(".blocks.")
        number, _, rest = after.partition(".")
        key = (before, rest, *_plain(place, *pair)) if in_block else (place, "", *_plain(place, *pair))
        blocks.setdefault(key, []).append(int(number) if in_block else -1)
    messages = []
    for (before, rest, theirs, ours), numbers in blocks.items():
        place = before if numbers[0] < 0 else f"{before}.blocks.{_range(numbers)}" + (f".{rest}" if rest else "")
        messages.append(f"{place} is {theirs} there and {ours} here")
    return messages


def _range(numbers: list[int]) -> str:
    consecutive = len(numbers) > 1 and numbers == list(range(numbers[0], numbers[-1] + 1))
    return f"{numbers[0]}-{numbers[-1]}" if consecutive else ",".join(map(str, numbers))


def _plain(place: str, theirs: Any, ours: Any) -> tuple[str, str]:
    """Two values as words; a part that one side lacks is "absent" there, and "present" on the other if it has no name."""
    own = {None: "absent"} | ({place.rpartition(".")[2]: "present"} if None in (theirs, ours) else {})

    def word(value: Any) -> str:
        if isinstance(value, bool):
            return "on" if value else "off"
        return own.get(value, str(value)) if isinstance(value, str | None) else str(value)

    return word(theirs), word(ours)
