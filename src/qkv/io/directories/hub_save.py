"""Save a model in the Hub's format: `config.json`, `generation_config.json` and weights that `transformers` loads."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...core.spec import SCHEMA
from ...generation import Generation
from ...nn.layers.low_rank import LowRankLinear
from ...nn.layers.quantized import quantized as is_quantized
from ...nn.models.base import ModelSpec
from ...nn.models.build import AnyModel, build
from ...nn.models.dual_encoder import DualEncoder
from ...nn.models.transformer import Transformer, TransformerModel
from ..families import FAMILIES, family_of
from ..hub import generation as generation_file
from ..hub.equivalent import equivalent, equivalent_specs
from ..hub.family import Family, difference
from ..hub.names import Names
from ..hub.quantized import stored
from ..hub.quantized.config import KEY
from . import sharded
from .layout import CONFIG, GENERATION, write_json
from .origin import Origin, without_sentence_vector

ROLES = tuple(f"{role}_token_id" for role in ("bos", "eos", "pad", "sep", "decoder_start", "forced_bos", "forced_eos"))

DEFAULT_ROLES = {
    "gpt2": {"bos_token_id": 50256, "eos_token_id": 50256},
    "gpt_bigcode": {"bos_token_id": 50256, "eos_token_id": 50256},
    "falcon": {"bos_token_id": 11, "eos_token_id": 11},
    "phi3": {"pad_token_id": 32000, "eos_token_id": 32000},
    "smollm3": {"pad_token_id": 128004, "bos_token_id": 128000, "eos_token_id": 128001},
    "gptj": {"bos_token_id": 50256, "eos_token_id": 50256},
    "ministral3": {"pad_token_id": 11},
    "olmo2": {"eos_token_id": 50279},
    "olmo3": {"eos_token_id": 50279},
    "modernbert": {
        "pad_token_id": 50283,
        **dict.fromkeys(("bos_token_id", "cls_token_id"), 50281),
        **dict.fromkeys(("eos_token_id", "sep_token_id"), 50282),
    },
    "big_bird": {"sep_token_id": 66},
    "whisper": dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 50256),
    "idefics3": {"pad_token_id": 128002},
    "smolvlm": {"pad_token_id": 128002},
    "clip_text_model": {"bos_token_id": 49406, "eos_token_id": 49407},
    "siglip_text_model": {"bos_token_id": 49406, "eos_token_id": 49407},
    "siglip2_text_model": {"bos_token_id": 49406, "eos_token_id": 49407},
    "marian": {"pad_token_id": 58100},  # a null `decoder_start_token_id` is refused
}
"""Tokens that transformers takes for roles that a configuration doesn't name, where a small vocabulary may lack them."""


def config_of(spec: ModelSpec, dtype: torch.dtype, origin: Origin | None = None) -> dict[str, Any]:
    """The Hub's `config.json` for a spec; key for key the origin's if the model is still the same.

    What the Hub's keys can't say (how parameters began, dropout if the family has none, the head `sentence-vector`, our
    task) stands under "qkv". Raises ValueError if no Hub family matches the spec.
    """
    full, spec = spec, without_sentence_vector(spec)
    origin = origin or Origin({})
    before = dict(origin.config)
    family = family_of(spec, before.get("model_type"))
    config = family.config(spec)
    cls = config["architectures"][0]
    variant = family.variant(spec, cls)
    if before.get("model_type") == family.model_type and not difference(family.spec(before, cls, variant), spec):
        config = before | {"architectures": [cls]}
    elif before.get("model_type") in (None, family.model_type):
        kept = {key: value for key, value in before.items() if key not in {*family.claimed, *family.labels.keys}}
        config = kept | family.labels.named(config, before)
    else:  # another family has other keys, except for the roles of tokens and the names of classes
        kept = {key: before[key] for key in ROLES if before.get(key) is not None and key not in family.claimed}
        config = kept | family.labels.named(config, before)
    config |= {key: {**config[key], **values} for key, values in family.inside.items() if key in config}
    if "model_type" not in before and isinstance(spec, Transformer) and spec.encoder is None:
        config.setdefault("pad_token_id", None)  # the default in transformers may lie outside the vocabulary (SmolLM3)
    config |= _roles_outside(config, spec.vocab_size, family.model_type)
    if isinstance(spec, DualEncoder):
        roles = {key: config.pop(key) for key in ROLES if "model_type" not in before and key in config}
        texts = {**roles, **config["text_config"]}
        config["text_config"] = texts | _roles_outside(texts, spec.vocab_size, texts.get("model_type", ""))
    key = "torch_dtype" if "torch_dtype" in config else "dtype"
    if "model_type" not in before or config.get(key) is not None:
        config[key] = str(dtype).removeprefix("torch.")
    own = {key: value for key, value in origin.own.items() if key != "spec"}
    if difference(family.spec(config, cls, variant), full, beside=frozenset()):
        own["spec"] = {"schema": SCHEMA, **full.to_dict()}
    config.pop("qkv", None)
    config.pop(KEY, None)  # of the weights that were loaded; those that are saved say for themselves
    return config | ({"qkv": own} if own else {})


def _roles_outside(config: Mapping[str, Any], vocab_size: int, model_type: str) -> dict[str, None]:
    """Roles to write as null because transformers would otherwise take a token beyond the vocabulary, and refuse the
    model if that is the padding."""
    defaults = DEFAULT_ROLES.get(model_type, {})
    return {key: None for key, token in defaults.items() if key not in config and token >= vocab_size}


def in_hub_form(model: TransformerModel, origin: Origin | None) -> TransformerModel:
    """The model, or if no Hub family matches it but one matches an equivalent model, the latter: see `hub.equivalent`.

    Warns if products of low rank became full matrices.
    """
    for spec in equivalent_specs(model.spec):
        try:
            config_of(spec, model.dtype, origin)
        except ValueError:
            continue
        other = equivalent(model, spec) or model
        if any(isinstance(layer, LowRankLinear) for layer in model.modules()) and other is not model:
            warnings.warn(
                f"no Hub family has matrices of low rank, so they are multiplied out: the model in the Hub's format has "
                f"{other.spec.n_parameters:,} parameters in place of {model.spec.n_parameters:,}",
                stacklevel=4,
            )
        return other
    return model


def judges(model: AnyModel) -> bool:
    """Whether a model's head judges whole sequences, so it generates none."""
    head = getattr(model, "head", None)
    return head is not None and bool(head.takes_layout)


def check(model: AnyModel, config: Mapping[str, Any]) -> None:
    """Raise ValueError if a configuration's class can't hold the model's quantized weights."""
    if is_quantized(model):
        stored.for_hub(model, names_of(model, config))


def names_of(model: AnyModel, config: Mapping[str, Any]) -> Names:
    """The names of a model's tensors, unquantized, in the class that a configuration names."""
    family: Family[Any] = FAMILIES[config["model_type"]]
    model = build(model.spec, device="meta") if is_quantized(model) else model
    return Names.of(family.table(model.spec, family.classes[config["architectures"][0]].bare), model)


def _state(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach() for name, tensor in model.state_dict().items()}


def _carried(family: Family[Any], model: AnyModel, bare: bool, origin: Origin) -> dict[str, torch.Tensor]:
    """The tensors that files of a family hold and nothing here is computed with: those that were loaded, else zeros."""
    carried = {}
    for name, shape in family.carried_shapes(model.spec, bare).items():
        loaded = origin.carried.get(name.removeprefix(family.prefix))
        fits = loaded is not None and loaded.shape == shape
        carried[name] = loaded if loaded is not None and fits else torch.zeros(shape, dtype=model.dtype)
    return carried


def save(
    folder: Path,
    model: AnyModel,
    settings: Mapping[str, Any],
    origin: Origin,
    max_shard_size: int | str = sharded.MAX_SHARD_SIZE,
    with_weights: bool = True,
) -> None:
    """Write the weights, if they are wanted, tied ones once; `generation_config.json` if the model generates; `config.json`.

    `settings` are the fields of a `Generation`. Raises ValueError, before anything is written, if no Hub family matches
    the model.
    """
    config = config_of(model.spec, model.dtype, origin)
    family = FAMILIES[config["model_type"]]
    bare = family.classes[config["architectures"][0]].bare
    if with_weights:
        tensors = family.computed_tensors(model.spec, bare) if family.writes_computed else {}
        computed = {name: tensor.to(model.dtype) for name, tensor in tensors.items()}
        computed |= _carried(family, model, bare, origin)
        names, state = names_of(model, config), _state(model)
        if is_quantized(model):
            names, own, config[KEY] = stored.for_hub(model, names)
            state |= own
        sharded.write(folder, names, state, max_shard_size, computed)
    if getattr(model, "decoder", None) is not None and not judges(model):
        samples = Generation.from_dict(settings).samples
        write_json(folder / GENERATION, generation_file.write(settings, origin.generation or {}, config, samples))
    write_json(folder / CONFIG, config)
