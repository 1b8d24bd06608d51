"""Weights from files into a model on the meta device, each tensor straight into its place."""

from __future__ import annotations

import math
import os
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ...nn.kernels.huge_pages import prefer_huge_pages
from ...nn.kernels.native import transposed
from ...nn.layers.embedding import TokenEmbedding
from ...nn.layers.grouped_linear import GroupedLinear
from ...nn.layers.linear import Linear
from ...nn.layers.quantized import QuantizedMatrix, put, quantized
from ...nn.models.base import ModelSpec
from ...nn.models.build import with_own_buffers
from ...nn.models.heads.language_model import LanguageModelHead
from ...nn.models.quantized.parts import experts_of
from ...nn.models.quantized.select import group_sizes, matrices, schemes_of
from ...nn.models.transformer import TransformerModel
from ...nn.quantization.methods.rtn import rtn
from ...nn.quantization.scheme import Scheme
from .files import Safetensors, WeightFiles
from .finite import is_finite, warn_of_no_numbers
from .names import Names, Reading, StoredPlace
from .quantized import CodedWeights, QuantizedWeights, by_rows, matrices_of
from .transforms import SAME

QUICK = 64  # layers
READERS = 4  # threads, of which some wait for the disk while others move numbers
LOOKED = 1 << 16  # how many numbers of a mapped tensor are checked; the other pages stay on the disk
IN_CACHE = 8 << 20  # bytes that are copied before it is checked whether they are finite
AT_ONCE = 64 << 20  # bytes that a thread copies in one call, during which other threads run Python


def place(
    model: TransformerModel,
    names: Names,
    weights: WeightFiles,
    *,
    where: str,
    device: torch.device,
    dtype: torch.dtype | None = None,
    scheme: Scheme | None = None,
    beside: bool = False,
) -> None:
    """Give a model on the meta device the weights of a file, in `dtype` (by default the file's own). With a `scheme`,
    weights of linear layers are quantized, one matrix at a time.

    Nothing is allocated before names, shapes and dtypes are known to fit; ValueErrors name what doesn't. What a file holds
    as the model wants it stays in the mapped file; the rest is copied once, from there into its place. Further copies of
    what is shared are not read; `other_copies` says which are not the same. Quantized matrices stay so in linear layers,
    embeddings and heads; other layers get them dequantized, with a warning. `beside` is as in `Names.read`. Warns of NaN
    and infinite numbers in copied tensors, and at the beginning of mapped ones.
    """
    names = by_rows(names, weights)
    reading = names.read(weights.shapes, where, beside)
    stored = common_dtype(
        reading, weights, where, {name for name, b in model.named_buffers() if not b.is_floating_point()}
    )
    if dtype is None and stored.itemsize < 2:
        raise ValueError(
            f"{where}: its weights are stored as {stored}, in which nothing is computed; load them with dtype='bfloat16'"
        )
    dtype = dtype or stored
    fresh = _buffers(model, device, dtype)
    groups = {} if scheme is None else _groups(model, scheme, weights, where)
    reader = _Reader(model, weights, device, dtype, {name: own.dtype for name, own in fresh.items()}, scheme, groups)
    one_by_one = scheme is not None or isinstance(weights, CodedWeights)
    with ThreadPoolExecutor(min(READERS, os.cpu_count() or 1)) as pool:
        for tensors in pool.map(
            reader.portion, _portions(reading.taken, 0 if one_by_one else AT_ONCE // dtype.itemsize)
        ):
            for name, tensor in tensors.items():
                if isinstance(tensor, QuantizedMatrix):
                    put(model, name.rpartition(".")[0], tensor)
                    continue
                _put_parameter(model, name, tensor)
    for name in (name for entry in reading.zeros for name in entry.ours):
        _put_parameter(model, name, torch.zeros(names.shapes[name], device=device, dtype=dtype))
    model.tie()
    _put_those_not_stored(model, fresh)
    _warn_of_dequantized(reading, weights, model, where)
    warn_of_no_numbers(reader.no_numbers, where, dtype)
    assert not any(t.is_meta for t in model.state_dict().values())


@dataclass(frozen=True)
class _Reader:
    """Reads tensors of a file as a model wants them.

    dtype:  of the tensors; `dtypes` are other ones, by name.
    groups: inputs that share a scale, of the layers that `scheme` quantizes.
    no_numbers: filled while reading: maps each tensor with NaN or infinite numbers to whether they are in the file itself.
    """

    model: TransformerModel
    weights: WeightFiles
    device: torch.device
    dtype: torch.dtype
    dtypes: Mapping[str, torch.dtype]
    scheme: Scheme | None
    groups: Mapping[str, int]
    no_numbers: dict[str, bool] = field(default_factory=dict)

    def portion(self, entries: Sequence[StoredPlace]) -> dict[str, Tensor | QuantizedMatrix]:
        """The tensors of entries, copied together."""
        copies: list[tuple[Tensor, Tensor]] = []
        placed = {name: tensor for entry in entries for name, tensor in self._read(entry, copies).items()}
        sound = {id(own) for own, finite in _copied(copies) if finite}
        for entry in entries:
            self._look(entry, {name: placed[name] for name in entry.ours if id(placed[name]) not in sound})
            if entry.how is not SAME or any(isinstance(placed[name], QuantizedMatrix) for name in entry.ours):
                for name in entry.theirs:
                    self.weights.forget(name)
        return placed

    def _read(self, entry: StoredPlace, copies: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor | QuantizedMatrix]:
        """The tensors of an entry; those in `copies` are empty until their numbers have been copied."""
        weights, again = self.weights, all(name.removesuffix(".weight") in self.groups for name in entry.ours)
        if isinstance(weights, CodedWeights) and not again and all(_takes_codes(self.model, n) for n in entry.ours):
            found = matrices_of(entry, weights)
            if found is not None:
                made = {n: QuantizedMatrix(*one, self.dtype, self._experts(n)) for n, one in found.items()}
                return {name: matrix.to(self.device) for name, matrix in made.items()}
        ours = entry.to_ours({name: weights.read(name) for name in entry.theirs})
        if again:
            return {name: self._quantized(name, t) for name, t in ours.items()}
        if entry.how is SAME:
            return {name: t.to(self.device, self.dtypes.get(name, self.dtype)) for name, t in ours.items()}
        empty: dict[str, Tensor | QuantizedMatrix] = {}
        for name, t in ours.items():
            own = torch.empty(t.shape, device=self.device, dtype=self.dtypes.get(name, self.dtype))
            prefer_huge_pages(own)
            copies.append((own, t))
            empty[name] = own
        return empty

    def _look(self, entry: StoredPlace, placed: Mapping[str, Tensor | QuantizedMatrix]) -> None:
        """Note tensors with NaN or infinite numbers. Only the beginning of a mapped tensor is checked."""
        for name, weight in placed.items():
            if isinstance(weight, QuantizedMatrix):
                if not is_finite(weight):
                    self.no_numbers[name] = True
                continue
            looked = weight.view(-1)[:LOOKED] if self._stays_mapped(entry, weight) else weight
            if weight.is_floating_point() and not is_finite(looked):
                self.no_numbers[name] = all(not is_finite(self.weights.read(one)) for one in entry.theirs)

    def _stays_mapped(self, entry: StoredPlace, tensor: Tensor) -> bool:
        """Whether a tensor of an entry stays mapped to the file, and nothing has read it."""
        weights, (first, *others) = self.weights, entry.theirs
        same = entry.how is SAME and not others and isinstance(weights, Safetensors) and not weights.is_checked(first)
        return same and weights.dtype(first) == tensor.dtype and tensor.device.type == "cpu"

    def _quantized(self, name: str, tensor: Tensor) -> QuantizedMatrix:
        scheme = self.scheme
        assert scheme is not None
        group = self.groups[name.removesuffix(".weight")]
        packed = rtn(tensor.to(self.device).flatten(0, -2), scheme.format, group, scheme.symmetric)
        return QuantizedMatrix(packed, scheme.activations, self.dtype, self._experts(name))

    def _experts(self, name: str) -> int | None:
        return experts_of(self.model.get_submodule(name.rpartition(".")[0]))


class StoredValues:
    """The values of a model's parameters in files, which are read one at a time, in one dtype."""

    def __init__(self, reading: Reading, names: Names, weights: WeightFiles, dtype: torch.dtype, where: str) -> None:
        self.names, self.weights, self.dtype, self.where = names, weights, dtype, where
        self._told = False
        self._stored = {name: entry for entry in reading.taken for name in entry.ours}
        self._zeros = {name for entry in reading.zeros for name in entry.ours}

    def __contains__(self, path: str) -> bool:
        first = self.names.alias.get(path, path)
        return first in self._stored or first in self._zeros

    def value(self, path: str) -> Tensor:
        """The whole value of a parameter, on the host. Raises ValueError naming the file if it is damaged."""
        first = self.names.alias.get(path, path)
        if first in self._zeros:
            return torch.zeros(self.names.shapes[first], dtype=self.dtype)
        entry = self._stored[first]
        read = entry.to_ours({name: self.weights.read(name) for name in entry.theirs})[first]
        value = read.to(self.dtype, copy=True)
        if not self._told and value.is_floating_point() and not is_finite(value):
            self._told = True  # one of many, in which case all may be so
            warn_of_no_numbers({path: not is_finite(read)}, self.where, self.dtype)
        for name in entry.theirs:
            self.weights.forget(name)
        return value


def values_of(
    model: TransformerModel,
    names: Names,
    weights: WeightFiles,
    *,
    where: str,
    device: torch.device,
    dtype: torch.dtype,
    beside: bool = False,
) -> StoredValues:
    """The values of a model's parameters, which stay on the meta device, and its buffers in their place, as `place` gives
    them. Raises the same errors; quantized weights are not supported."""
    assert not isinstance(weights, CodedWeights)
    names = by_rows(names, weights)
    reading = names.read(weights.shapes, where, beside)
    buffers = dict(model.named_buffers())
    common_dtype(reading, weights, where, {name for name, b in buffers.items() if not b.is_floating_point()})
    values, fresh = StoredValues(reading, names, weights, dtype, where), _buffers(model, device, dtype)
    model.tie()
    for name in buffers:
        stored = values.value(name).to(fresh[name]) if name in values else fresh[name]
        _put_parameter(model, name, stored)
    return values


def _buffers(model: TransformerModel, device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
    """The buffers of a model of these sizes as its modules make them, which decide their dtypes."""
    if next(model.buffers(), None) is None:
        return {}
    return dict(with_own_buffers(model.spec, device, dtype).named_buffers())


def _put_those_not_stored(model: nn.Module, fresh: Mapping[str, Tensor]) -> None:
    """Give a loaded model the buffers that no file holds."""
    for name, buffer in model.named_buffers():
        if buffer.is_meta:
            path, _, own = name.rpartition(".")
            setattr(model.get_submodule(path), own, fresh[name])


def _put_parameter(model: nn.Module, name: str, tensor: Tensor) -> None:
    path, _, own = name.rpartition(".")
    module = model.get_submodule(path)
    setattr(module, own, nn.Parameter(tensor) if own in module._parameters else tensor)


def _copied(copies: list[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, bool]]:
    """Copy each pair's second tensor into its first, which has the same shape. Yields the copies, and whether their numbers
    are finite, which is found while they are in the processor's cache."""
    others, size = list[tuple[Tensor, Tensor]](), 0
    for own, t in copies:
        if transposed.serves(own, t):
            yield own, transposed.copy(own, t)
            continue
        if others and size + own.nbytes > IN_CACHE:
            yield from _copied_together(others)
            others, size = [], 0
        others.append((own, t))
        size += own.nbytes
    yield from _copied_together(others)


def _copied_together(copies: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, bool]]:
    if copies:
        torch._foreach_copy_([own for own, _ in copies], [t for _, t in copies])
    return [(own, is_finite(own)) for own, _ in copies]


def _portions(entries: Sequence[StoredPlace], most: int) -> Iterator[list[StoredPlace]]:
    """Entries in their order, in lists of at most this many numbers, or of one entry."""
    portion: list[StoredPlace] = []
    size = 0
    for entry in entries:
        numbers = sum(map(math.prod, entry.shapes))
        if portion and size + numbers > most:
            yield portion
            portion, size = [], 0
        portion.append(entry)
        size += numbers
    if portion:
        yield portion


def _groups(model: TransformerModel, scheme: Scheme, weights: WeightFiles, where: str) -> dict[str, int]:
    """The sizes of the groups of the layers to round. Raises ValueError if they can't be."""
    if isinstance(weights, QuantizedWeights):
        raise ValueError(f"{where}: its weights are quantized already; leave out weights={scheme.weights!r}")
    try:
        layers = matrices(model)
        return group_sizes(layers, schemes_of(layers, scheme))
    except ValueError as error:
        raise ValueError(f"{where} can't be loaded with weights={scheme.weights!r}: {error}") from None


def _takes_codes(model: nn.Module, name: str) -> bool:
    """Whether a tensor is the weight of a layer that multiplies by quantized matrices."""
    path, _, own = name.rpartition(".")
    layer = model.get_submodule(path)
    return own == "weight" and isinstance(layer, Linear | GroupedLinear | TokenEmbedding | LanguageModelHead)


def _warn_of_dequantized(reading: Reading, weights: WeightFiles, model: nn.Module, where: str) -> None:
    if not isinstance(weights, CodedWeights):
        return
    kept = {f"{path}.weight" for path in quantized(model)}
    full = [e for e in reading.taken if weights.layers.keys() & set(e.theirs) and not kept & set(e.ours)]
    if full:
        count = sum(len(entry.theirs) for entry in full)
        warnings.warn(
            f"{where}: {count} quantized matrices, of {full[0].ours[0]} for example, are kept in full precision, because "
            "this kind of layer has no quantized form here",
            stacklevel=3,
        )


def check_depth(spec: ModelSpec, weights: WeightFiles, where: str) -> None:
    """That no stack has far more layers than the weights' names have numbers for, found before any layer is made.

    Up to `QUICK` layers are soon made, and what is missing is then told by its name. Raises ValueError with both counts.
    """
    parts = {part for name in weights.shapes for part in name.split(".") if part.isdecimal() and len(part) < 6}
    there = 1 + max(map(int, parts), default=-1)
    for name, stack in spec.stacks():
        if len(stack.blocks) > max(there, QUICK):
            raise ValueError(
                f"{where}: its configuration says {len(stack.blocks)} layers ({name}), and its weights have {there}; "
                "a number of layers is wrong, or files of weights are missing"
            )


def common_dtype(reading: Reading, weights: WeightFiles, where: str, whole: Collection[str] = ()) -> torch.dtype:
    """The dtype that most of a file's tensors have. Raises ValueError for weights that are no floating-point numbers, except
    for buffers of whole numbers, `whole`, and for these if they are fractions."""
    count: Counter[torch.dtype] = Counter()
    for entry in reading.taken:
        if whole and not set(entry.ours).isdisjoint(whole):
            for name in entry.theirs:
                if weights.dtype(name).is_floating_point:
                    raise ValueError(f"{where}: {name} holds {weights.dtype(name)}, and it is a count of whole numbers")
            continue
        for name in entry.theirs:
            if isinstance(weights, CodedWeights) and name in weights.layers:
                continue
            dtype = weights.dtype(name)
            if not dtype.is_floating_point:
                raise ValueError(f"{where}: {name} holds {dtype}, and weights are floating-point numbers")
            count[dtype] += 1
    return count.most_common(1)[0][0] if count else torch.float32


def other_copies(reading: Reading, weights: WeightFiles) -> list[StoredPlace]:
    """Further copies of shared tensors that differ from the copy that is read, if the model computes with them."""
    return [entry for entry in reading.again if not entry.copied and not _equal(entry, reading, weights)]


def _equal(entry: StoredPlace, reading: Reading, weights: WeightFiles) -> bool:
    firsts = [taken for taken in reading.taken if not set(entry.ours).isdisjoint(taken.ours)]
    one = {ours: t for first in firsts for ours, t in first.to_ours({n: weights.read(n) for n in first.theirs}).items()}
    other = entry.to_ours({name: weights.read(name) for name in entry.theirs})
    return all(torch.equal(one[name], tensor) for name, tensor in other.items())
