"""Quantized models in files: tensors and `quantization_config` in compressed-tensors' layout, or for nf4 bitsandbytes'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ....nn.layers.embedding import TokenEmbedding
from ....nn.layers.linear import Linear
from ....nn.layers.quantized import PARTS, QuantizedMatrix, quantized
from ....nn.models.build import AnyModel
from ....nn.models.heads.language_model import LanguageModelHead
from ....nn.quantization.formats import Packed
from ....training.checkpoints.weights import model_tensors
from ..names import Names, StoredPlace
from ..transforms import SAME, Stacked
from . import bitsandbytes, compressed_tensors
from .compressed_tensors import CompressedMatrix

Tensors = dict[str, Tensor]


def tensors_of(model: AnyModel) -> tuple[Tensors, dict[str, Any] | None]:
    """A model's tensors under the names of qkv's own files, and its `quantization_config`, if it is quantized."""
    matrices = quantized(model)
    own = model_tensors(model)
    if not matrices:
        return own, None
    codes = {f"{path}.weight.{part}" for path in matrices for part in PARTS}
    tensors = {name: tensor for name, tensor in own.items() if name not in codes}
    layers = {path: _stored(matrix) for path, matrix in matrices.items()}
    written, config = _written(layers, _unquantized(model), model.dtype)
    return tensors | written, config


def _stored(matrix: QuantizedMatrix) -> CompressedMatrix:
    return CompressedMatrix(matrix.packed, matrix.activations)


def _unquantized(model: AnyModel) -> list[str]:
    """The linear layers and heads in full precision."""
    layers = {n: m for n, m in model.named_modules() if isinstance(m, Linear | LanguageModelHead)}
    return [name for name, layer in layers.items() if not isinstance(layer.weight, QuantizedMatrix)]


def _written(
    layers: Mapping[str, CompressedMatrix], ignored: list[str], dtype: torch.dtype
) -> tuple[Tensors, dict[str, Any]]:
    """The tensors of quantized layers by their names, and the configuration that says what they are."""
    kinds = {one.packed.format.name for one in layers.values()}
    if kinds == {"nf4"}:
        parts = {layer: bitsandbytes.tensors(one.packed, dtype) for layer, one in layers.items()}
        config = bitsandbytes.config(ignored, dtype)
    elif "nf4" in kinds:
        raise ValueError(f"no file holds nf4 beside {', '.join(sorted(kinds - {'nf4'}))}; quantize all layers alike")
    else:
        parts = {layer: compressed_tensors.tensors(one.packed) for layer, one in layers.items()}
        config = compressed_tensors.config(layers, ignored)
    return {layer + ending: tensor for layer, own in parts.items() for ending, tensor in own.items()}, config


def for_hub(model: AnyModel, names: Names) -> tuple[Names, Tensors, dict[str, Any]]:
    """The same under the names of a Hub family: names of the tensors to write, the tensors, and the configuration.

    `names` are the names in the model without quantization. Raises ValueError for what other libraries don't read quantized:
    embeddings, and matrices that they keep transposed, as GPT-2's.
    """
    matrices = {f"{path}.weight": matrix for path, matrix in quantized(model).items()}
    if tables := [n for n in matrices if isinstance(model.get_submodule(n.removesuffix(".weight")), TokenEmbedding)]:
        raise ValueError(
            f"other libraries read no quantized embeddings, such as {tables[0]}; save it to 'qkv', or dequantize it"
        )
    entries, layers, ignored = list[StoredPlace](), dict[str, CompressedMatrix](), list[str]()
    for entry in names.written():
        found = [matrices[name] for name in entry.ours if name in matrices]
        if not found:
            entries.append(entry)
            ignored += [n.removesuffix(".weight") for n in entry.theirs if _is_linear(model, entry.ours[0])]
            continue
        if isinstance(entry.how, Stacked):
            layers |= _apart(entry, found[0])
            continue
        if len(found) < len(entry.ours) or (len(entry.theirs) > 1 and entry.how is not SAME):
            raise ValueError(f"{entry.theirs[0]} is one matrix there, and here quantized in part; quantize all of it")
        layers |= joined(entry, found)
    tensors, config = _written(layers, ignored, model.dtype)
    entries += [StoredPlace((name,), (name,), SAME, (tuple(tensor.shape),)) for name, tensor in tensors.items()]
    return Names({}, {}, tuple(entries)), tensors, config


def _is_linear(model: AnyModel, name: str) -> bool:
    path, _, own = name.rpartition(".")
    return own == "weight" and isinstance(model.get_submodule(path), Linear | LanguageModelHead)


def _apart(entry: StoredPlace, matrix: QuantizedMatrix) -> dict[str, CompressedMatrix]:
    """The matrix of each expert by its name."""
    height = matrix.dense_shape[1]
    return {
        name.removesuffix(".weight"): CompressedMatrix(
            matrix.packed.rows(slice(e * height, (e + 1) * height)), matrix.activations
        )
        for e, name in enumerate(entry.theirs)
    }


def joined(entry: StoredPlace, found: list[QuantizedMatrix]) -> dict[str, CompressedMatrix]:
    """The quantized layers of an entry by their names."""
    if entry.how is SAME:
        pairs = zip(entry.theirs, found, strict=True)
        return {theirs.removesuffix(".weight"): _stored(matrix) for theirs, matrix in pairs}
    parts = [matrix.packed.tensors() for matrix in found]
    alike = len({(m.format.name, m.scales.shape[1], tuple(p)) for m, p in zip(found, parts, strict=True)}) == 1
    rows = entry.how.shapes([matrix.shape for matrix in found])[0] == (
        sum(m.shape[0] for m in found),
        found[0].shape[1],
    )
    if not (alike and rows) or any(matrix.order is not None for matrix in found):
        raise ValueError(
            f"{entry.theirs[0]} is kept there in a form that can't be quantized (transposed, or joined from unlike parts); "
            "save it to 'qkv'"
        )
    tensors = {name: entry.how.to_theirs([part[name] for part in parts])[0] for name in parts[0]}
    first = found[0].packed
    whole = Packed(first.format, (tensors["codes"].shape[0], first.shape[1]), **tensors)
    return {entry.theirs[0].removesuffix(".weight"): CompressedMatrix(whole, found[0].activations)}
