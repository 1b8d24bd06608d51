"""Load a model from a GGUF file: its configuration, its weights, its tokenizer and its special tokens."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ...data.tokenizers.tokenizer import Tokenizer
from ...nn.models.transformer import Transformer
from ...nn.quantization.scheme import Scheme
from ..families import FAMILIES
from ..hub import generation as generation_file
from ..hub.gguf import container
from ..hub.gguf.architectures import Architecture, of_file
from ..hub.gguf.encoders import ENCODERS, with_pooling
from ..hub.gguf.rope import FREQUENCIES, LONG, SHORT, with_factors
from ..hub.gguf.tokenizers.read import read_tokenizer
from ..hub.gguf.tokenizers.vocabulary import special_ids
from ..hub.gguf.weights import GGUFWeights
from ..hub.names import Names, listed
from ..hub.weights import check_depth, place
from .build import Model, build
from .origin import Origin

ARCHITECTURE = "general.architecture"
EMBEDDING, OUTPUT = "token_embd.weight", "output.weight"


def load(
    path: Path, device: torch.device, dtype: torch.dtype | None = None, scheme: Scheme | None = None
) -> tuple[Model, Origin, Tokenizer | None]:
    """The model in a GGUF file, what else the file says, and its tokenizer.

    Raises ValueError in one sentence, before anything is allocated, if the file is damaged, or its architecture, a key,
    a tensor or the tokenizer is not known here.
    """
    file = container.read(path)
    weights = GGUFWeights(file)
    config, architecture = _config(file, weights, path)
    spec = _spec(config, path, file)
    _tell_unread(architecture.unread(_inside(file), weights.shapes), path, file)
    check_depth(spec, weights, str(path))
    model = build(spec, device="meta")
    names = Names.of(architecture.rows(spec), model)
    tokenizer = _naming(path, lambda: read_tokenizer(file.metadata))
    place(model, names, weights, where=str(path), device=device, dtype=dtype, scheme=scheme)
    model.origin = _origin(config, spec, path)
    return model.eval(), model.origin, tokenizer


def weights_of(path: Path) -> str | None:
    """The format in which most matrices of a file stay quantized; None if none does."""
    return GGUFWeights(container.read(path)).usual_weights


def spec(path: Path) -> Transformer:
    """The spec of the model in a GGUF file."""
    file = container.read(path)
    return _spec(_config(file, GGUFWeights(file), path)[0], path, file)


def origin(path: Path) -> Origin:
    """What a GGUF file says besides its weights and its tokenizer."""
    file = container.read(path)
    config, _ = _config(file, GGUFWeights(file), path)
    return _origin(config, _spec(config, path, file), path)


def _origin(config: dict[str, Any], spec: Transformer, path: Path) -> Origin:
    known, _ = generation_file.without_unknown(config, spec.vocab_size)
    fields, ids = _naming(path, lambda: generation_file.read({}, known, False, spec.vocab_size))
    return Origin(config, None, ids, fields)


def _config(file: container.Tensors, weights: GGUFWeights, path: Path) -> tuple[dict[str, Any], Architecture]:
    """The Hub's configuration, with the special tokens, and llama.cpp's architecture."""
    metadata = file.metadata
    if metadata.get("general.type", "model") != "model":
        raise ValueError(f"{path} holds no model: its general.type is {str(metadata['general.type'])[:80]!r}")
    if EMBEDDING not in weights.shapes or len(weights.shapes[EMBEDDING]) != 2:
        raise ValueError(f"{path} has no matrix {EMBEDDING!r}, so it is no language model that is read here")
    inside = _inside(file)
    architecture = _naming(path, lambda: of_file(metadata.get(ARCHITECTURE), inside))
    config = _naming(path, lambda: architecture.config(inside, weights.shapes, weights.shapes[EMBEDDING][0]))
    if architecture.tied is not None and OUTPUT in weights.shapes and weights.same(EMBEDDING, OUTPUT):
        config[architecture.tied] = True
    factors = {name: weights.read(name) for name in (FREQUENCIES, LONG, SHORT) if name in weights.shapes}
    config = _naming(path, lambda: with_factors(config, factors))
    return config | _naming(path, lambda: special_ids(metadata)), architecture


def _tell_unread(names: list[str], path: Path, file: container.Tensors) -> None:
    """Warn of metadata that qkv doesn't read. The pooling and the mask of encoders are read with their heads."""
    if file.metadata[ARCHITECTURE] in ENCODERS:
        names = [name for name in names if name != "attention.causal"]
    if names:
        warnings.warn(
            f"{path}: qkv does not read its metadata {listed(names)}, by which llama.cpp may compute something else",
            stacklevel=4,
        )


def _inside(file: container.Tensors) -> dict[str, Any]:
    """The metadata of a file's architecture, without its name before each key."""
    prefix = f"{file.metadata.get(ARCHITECTURE)}."
    return {key.removeprefix(prefix): value for key, value in file.metadata.items() if key.startswith(prefix)}


def _spec(config: Mapping[str, Any], path: Path, file: container.Tensors) -> Transformer:
    family = FAMILIES[config["model_type"]]
    if file.metadata[ARCHITECTURE] not in ENCODERS:
        return _naming(path, lambda: family.spec(config))
    bare = len(family.classes[family.class_of(config)].variants) - 1  # without a pooler
    return _naming(path, lambda: with_pooling(family.spec(config, variant=bare), _inside(file)))


def _naming(path: Path, make: Any) -> Any:
    """Call `make`; its ValueErrors name the file."""
    try:
        return make()
    except ValueError as error:
        if str(error).startswith(str(path)):
            raise
        raise ValueError(f"{path}: {error}") from None
