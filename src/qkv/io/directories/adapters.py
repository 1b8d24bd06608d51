"""`qkv.save_adapter` and `qkv.load_adapter`: a model's LoRA adapter as a directory that the Hub's `peft` library reads."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from ...core import several
from ...core.atomic import replacing_folder
from ...core.spec import brief
from ...nn.layers.lora import LoRA, fold, insert, layers, merged
from ...nn.layers.quantized import quantized
from ...nn.models.heads.language_model import LanguageModel
from ...nn.models.transformer import TransformerModel
from ...training.checkpoints.streaming import Later, stream_tensors
from ...training.checkpoints.weights import gathered_tensors, read_tensors, replace_tensors
from ..families import FAMILIES, family_of
from ..hub import huggingface, peft
from ..hub.finite import is_finite, warn_of_no_numbers
from ..hub.names import Names, Row
from .build import build
from .layout import Contents, note_written, read_json, replaceable, write_json
from .origin import MODEL_TYPE

Model = TypeVar("Model", bound=TransformerModel)
ADAPTER_FILES = Contents("an adapter's directory", (peft.CONFIG, peft.WEIGHTS), needs=peft.CONFIG)


def save_adapter(model: TransformerModel, path: Path | str, base: Path | str = "", *, overwrite: bool = False) -> Path:
    """Write `adapter_config.json` and `adapter_model.safetensors`, which `PeftModel.from_pretrained` loads.

    The names are those of the family that the model was loaded from, or else of the nearest one; if no family of the Hub
    matches it, of the Auto classes of `qkv.transformers`. `base` is written down as the model that the adapter belongs
    to. An adapter in `path` is replaced only if `overwrite` is true, or if this process saved it from the same model.
    Raises ValueError, before anything is written, if the model has no adapter, or if `path` holds other files or an
    adapter that may not be replaced.
    """
    folder = several.path(path)
    _check(model)
    generates = isinstance(model.spec.head, LanguageModel) and model.spec.decoder is not None
    task = ("SEQ_2_SEQ_LM" if model.spec.is_encoder_decoder else "CAUSAL_LM") if generates else None
    model_type, known = next(_modules(model))
    config, tensors = peft.to_theirs(model, known, str(base), task)
    peft.check_kept(model_type, config["target_modules"])
    with replacing_folder(folder, replaceable(ADAPTER_FILES, model, overwrite)) as beside:
        replace_tensors(beside / peft.WEIGHTS, tensors)
        write_json(beside / peft.CONFIG, config)
    note_written(ADAPTER_FILES, model, folder)
    return folder


@torch.no_grad()
def load_adapter(model: Model, path: Path | str) -> Model:
    """Put the LoRA adapter of a directory, `peft`'s or ours, into a model, in place; the model is given back. PEFT may have
    trained it on transformers' model, on an Auto class of `qkv.transformers` or on qkv's model.

    Warns if the adapter and a model in the Hub's cache name different models. Raises ValueError, before anything is
    changed, if the directory asks for what is not known here or is of another model.
    """
    folder = several.path(path)
    _check(model)
    for name in (peft.CONFIG, peft.WEIGHTS):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} is no adapter's directory: it has no {name}")
    config, tensors = read_json(folder / peft.CONFIG), read_tensors(folder / peft.WEIGHTS)
    found = {name: True for name, tensor in tensors.items() if not is_finite(tensor)}
    refusals: list[tuple[int, ValueError]] = []
    spec = _spec(config, folder)
    for _, known in _modules(model):
        try:
            adapted = peft.sizes(known, config, spec, tensors)
        except ValueError as error:
            familiar = sum(f"{peft.PREFIX}{name}.lora_A.weight" in tensors for name in known)
            refusals.append((familiar, ValueError(f"{folder}: {error}")))
            continue
        insert(model, spec.replace(layers=tuple(adapted)), {name: size for name, (size, _, _) in adapted.items()})
        for name, layer in layers(model).items():
            _, a, b = adapted[name]
            layer.lora_a.copy_(a)
            layer.lora_b.copy_(b)
        warn_of_no_numbers(found, str(folder / peft.WEIGHTS), torch.float32)
        _warn_of_another_base(config, model, folder)
        return model
    raise max(refusals, key=lambda one: one[0])[1]  # of the names that the adapter has, or else of the model's family


_FORMATS = frozenset(
    ["bnb", "4bit", "8bit", "gptq", "awq", "int4", "int8", "fp8", "bf16", "fp16", "hf", "gguf", "unsloth", "meta"]
)
"""Words in the names of a model's copies that tell a format or an owner, not another model."""


def _warn_of_another_base(config: Mapping[str, Any], model: TransformerModel, folder: Path) -> None:
    """Warn if an adapter was trained on another model than this one. Both must have names of the Hub: directories of the
    same model have any name. Formats (`-bnb-4bit`), owners, case and punctuation don't count."""
    base = config.get("base_model_name_or_path")
    own = None if model.origin is None else model.origin.repository
    if own is None or not isinstance(base, str) or not huggingface.is_id(base) or Path(base).exists():
        return
    if _plain(base) != _plain(own):
        warnings.warn(
            f"{folder} names {brief(base)} as the model that it was trained on, and it is put into {brief(own)}; if these "
            "are different models, outputs are wrong",
            stacklevel=3,
        )


def _plain(name: str) -> str:
    """Return the name of a model without owner, format, case and punctuation."""
    parts = re.split(r"[^a-z0-9]+", name.rpartition("/")[2].lower())
    return "".join(part for part in parts if part not in _FORMATS)


def _check(model: object) -> None:
    if not isinstance(model, TransformerModel):
        raise ValueError(
            f"adapters belong to Transformers, such as `model` of a run, and this model is {several.shown(model)}"
        )


def save_merged(model: TransformerModel, path: Path | str) -> None:
    """Write the weights with the adapter merged into them; if they are quantized, dequantized one matrix at a time."""
    path = several.path(path)
    if quantized(model):
        stream_tensors(path, [Later(*one) for one in merged(model)])
    else:
        replace_tensors(path, gathered_tensors(fold(model)))


def _spec(config: object, folder: Path) -> LoRA:
    try:
        return peft.read_config(config)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None


def _modules(model: TransformerModel) -> Iterator[tuple[str, dict[str, peft.PEFTModule]]]:
    """The model type and the modules of the model's Hub class. Then what adapters may name as well: modules by their older
    names, with or without the prefix, whichever the class has not, those of other families that the model may belong
    to, and modules by our names, below an Auto class of `qkv.transformers` and alone."""
    plain, origin = build(model.spec, device="meta"), model.origin
    try:
        first = family_of(model.spec, None if origin is None else origin.config.get("model_type"))
        families = [first, *(other for other in FAMILIES.values() if other is not first)]
    except ValueError:
        families = []  # no family matches
    for family in families:
        try:
            (cls,) = family.config(model.spec)["architectures"]
        except (ValueError, TypeError):
            continue
        bare = family.classes[cls].bare
        for way in (bare, not bare):
            for table in family.module_tables(model.spec, way):
                for renamed in (family.modules, {}) if family.modules else ({},):
                    yield family.model_type, peft.parts(model, Names.of(table, plain), renamed)
    for prefix in ("model.", ""):
        yield MODEL_TYPE, peft.parts(model, Names.of((Row(f"{prefix}*", "*"),), plain), {})
