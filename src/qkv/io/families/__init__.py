"""Model families, one file each: a factory for any size, named sizes of published models, and tables of the Hub's format."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ...core.registry import LazyTable
from ...nn.models import summary
from ...nn.models.base import ModelSpec
from ...nn.models.dual_encoder import DualEncoder
from ...nn.models.transformer import Transformer
from ..hub.family import Family
from ..hub.overrides import changes_to, overrides

if TYPE_CHECKING:
    from .named import PRESETS as PRESETS
    from .named import preset as preset
    from .named import presets as presets


# fmt: off
ENCODER_DECODERS: dict[str, tuple[str, ...]] = {
    "bart": ("bart",),
    "marian": ("marian",),
    "pegasus": ("pegasus",),
    "mbart": ("mbart",),
    "m2m_100": ("m2m_100",),
    "t5": ("t5", "mt5"),
    "umt5": ("umt5",),
    "whisper": ("whisper",),
}
ALONE = ("t5", "mt5", "umt5")  # model types with a class for the encoder alone
MODULES: dict[str, tuple[str, ...]] = {
    "vanilla": (),
    "gpt2": ("gpt2",),
    "openai_gpt": ("openai-gpt",),
    "opt": ("opt",),
    "gptj": ("gptj",),
    "bigcode": ("gpt_bigcode",),
    "neox": ("gpt_neox",),
    "bloom": ("bloom",),
    "mpt": ("mpt",),
    "falcon": ("falcon",),
    "palm": (),
    "llama": ("llama",),
    "mistral": ("mistral",),
    "ministral": ("ministral3", "ministral"),
    "qwen2": ("qwen2",),
    "qwen3": ("qwen3",),
    "gemma": ("gemma",),
    "gemma2": ("gemma2",),
    "phi3": ("phi3",),
    "gemma3": ("gemma3_text",),
    "smollm3": ("smollm3",),
    "olmo2": ("olmo2",),
    "olmo3": ("olmo3",),
    "granite": ("granite",),
    "mixtral": ("mixtral",),
    "qwen2_moe": ("qwen2_moe",),
    "qwen3_moe": ("qwen3_moe",),
    "bert": ("bert",),
    "modernbert": ("modernbert",),
    "roberta": ("roberta", "xlm-roberta", "camembert"),
    "mpnet": ("mpnet",),
    "nomic_bert": ("nomic_bert",),
    "esm": ("esm",),
    "distilbert": ("distilbert",),
    "electra": ("electra",),
    "albert": ("albert",),
    "longformer": ("longformer",),
    "bigbird": ("big_bird",),
    **ENCODER_DECODERS,
    "vit": ("vit",),
    "deit": ("deit",),
    "vit_mae": ("vit_mae",),
    "yolos": ("yolos",),
    "idefics3": ("idefics3", "smolvlm"),
    "paligemma": ("paligemma",),
    "gemma3_vision": ("gemma3",),
    "qwen_vl": ("qwen2_5_vl", "qwen2_vl"),
    "qwen3_vl": ("qwen3_vl",),
    "qwen3_vl_moe": ("qwen3_vl_moe",),
    "wav2vec2": ("wav2vec2", "hubert"),
    "segmenter": (),
    "rnnsearch": (),
    "convolutional": (),
    "captioner": (),
    "speech_encoder": (),
    "clip": ("clip", "clip_text_model", "clip_vision_model"),
    "siglip": ("siglip", "siglip_text_model", "siglip_vision_model"),
    "siglip2": ("siglip2", "siglip2_text_model", "siglip2_vision_model"),
}
DUAL_ENCODERS = ("clip", "siglip", "siglip2")
TOWERS = (
    *("clip_text_model", "clip_vision_model", "siglip_text_model", "siglip_vision_model"),
    *("siglip2_text_model", "siglip2_vision_model"),
)
PROTEINS = ("esm",)
# fmt: on
"""The modules of this package that define models, each with its model types on the Hub; a new family is added here.

A module has `SIZES`, the presets of its factory, and a `Family` for each model type: `FAMILY`, and for a second one its name
in capitals, with _ for -. A module without model types has `PRESETS`: pairs of a factory and its presets.
`DUAL_ENCODERS` are the model types of two towers, and `TOWERS` of one of them alone. These, and `PROTEINS`, are not named as
the nearest.
"""


FAMILIES: LazyTable[Family] = LazyTable()
"""The families that the Hub has too, by model type. A spec that several can express is saved as the first of them. A
family's module is imported when it is first asked for: loading a model needs only one."""

for _module, _model_types in MODULES.items():
    for _i, _model_type in enumerate(_model_types):
        _name = _model_type.upper().replace("-", "_") if _i else "FAMILY"
        FAMILIES.later(_model_type, f"{__name__}.{_module}", attrgetter(_name))


def __getattr__(name: str) -> Any:
    """Presets are imported when they are first used."""
    if name not in ("PRESETS", "preset", "presets"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".named", __package__), name)


@lru_cache(maxsize=256)
def like(spec: object) -> str | None:
    """The first of the Hub's families that can express a model, by its first two layers; None if none can."""
    if not isinstance(spec, Transformer | DualEncoder):
        return None
    if isinstance(spec, Transformer):
        stacks = spec.stacks()
        if all(stack.order is None for _, stack in stacks):
            spec = spec.replace({f"{name}.blocks": stack.blocks[:2] for name, stack in stacks})
    translates = [model_type for model_types in ENCODER_DECODERS.values() for model_type in model_types]
    for model_type in _of_kind(spec):
        if (model_type in translates) != spec.is_encoder_decoder and not (model_type in ALONE and _has_buckets(spec)):
            continue  # its module is not imported in vain
        family: Family[Any] = FAMILIES[model_type]
        if family.expresses(spec):
            return family.model_type
    return None


def _has_buckets(spec: ModelSpec) -> bool:
    """Whether a spec is an encoder with T5's positions."""
    encoder = getattr(spec, "encoder", None)
    return not spec.is_encoder_decoder and encoder is not None and encoder.position.kind == "t5"


summary.families.append(like)


def _of_kind(spec: ModelSpec) -> list[str]:
    """The model types of the models that are of one kind with a spec: of one stack or two, or of two towers."""
    return [one for one in FAMILIES if (one in DUAL_ENCODERS) == isinstance(spec, DualEncoder)]


def family_of(spec: ModelSpec, first: str | None = None) -> Family[Any]:
    """The family that can express a spec; `first` is tried first.

    Raises ValueError if none can, with all obstacles in the nearest family and, if there are any, overrides of
    `qkv train` that remove them. Of families equally near, one that differs only in the head is named.
    """
    if not isinstance(spec, Transformer | DualEncoder):
        raise ValueError(f"no Hub family matches a model of the kind {spec.kind}")
    found = _family_or_reason(spec, first, tuple(FAMILIES[model_type] for model_type in _of_kind(spec)))
    if isinstance(found, str):
        raise ValueError(found)
    return found


@lru_cache(maxsize=16)  # to save a model, its family is asked for several times
def _family_or_reason(spec: ModelSpec, first: str | None, families: tuple[Family[Any], ...]) -> Family[Any] | str:
    """The family of `families` that can express a spec, or a sentence why none can."""
    ordered = sorted(families, key=lambda family: family.model_type != first)
    for family in ordered:
        if family.expresses(spec):
            return family
    refusals: list[tuple[tuple[int, bool], Family[Any], dict[str, tuple[Any, Any]], list[str]]] = []
    for family in ordered:
        try:
            _, sizes, differences = family.nearest(spec)
        except (ValueError, TypeError):
            continue  # it doesn't even have the same parts
        unwritable = family.unwritable(sizes)
        if family.model_type in (*TOWERS, *PROTEINS) and family.model_type != first:
            continue
        only_head = not unwritable and all(path.startswith("head.") for path in differences)
        refusals.append(((_distance(differences) + len(unwritable), not only_head), family, differences, unwritable))
    if not refusals:
        return "no Hub family matches this model: none has the same parts"
    _, family, differences, unwritable = min(refusals, key=lambda refusal: (refusal[1].model_type != first, refusal[0]))
    reasons = "; ".join([*_obstacles(differences), *unwritable])
    settings = _overrides(family, spec)
    advice = f"; a model trained with {settings} can be saved" if settings else ""
    return f"no Hub family matches this model; {family.model_type} comes nearest: {reasons}{advice}"


def _overrides(family: Family[Any], spec: ModelSpec) -> str:
    """Overrides with which a recipe's model is one of the family; "" if there are none."""
    if not isinstance(spec, Transformer):
        return ""
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
