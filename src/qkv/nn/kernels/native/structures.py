"""The C++ structures that Python fills, field by field, and their comparison with a library's when it is loaded."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any, ClassVar

_LONG, _INT, _FLOAT, _PLACE = ctypes.c_long, ctypes.c_int, ctypes.c_float, ctypes.c_void_p
_WORD = ctypes.c_uint32


class Structure(ctypes.Structure):
    """A C++ structure. The fields must have the names, sizes and offsets of the source's."""

    sources: ClassVar[dict[str, str]]
    """Its name in each library whose calls take it."""


class Strides(Structure):
    """Numbers from one row of the batch, token and head to the next."""

    sources: ClassVar = dict.fromkeys(("decoding", "encoding", "block_sparse", "bf16_amx"), "Strides")
    _fields_ = [(name, _LONG) for name in ("batch", "row", "head")]


_COUNTS = [(name, _LONG) for name in ("batch", "heads", "kv_heads", "queries", "keys", "width", "values")]


class AttentionStruct(Structure):
    """Attention of one call: its sizes, and what is added to or hidden from scores."""

    sources: ClassVar = dict.fromkeys(("decoding", "encoding"), "Attention")
    _fields_ = [
        *_COUNTS,
        *((name, Strides) for name in ("q", "k", "v", "out")),
        ("mask", _PLACE),
        ("mask_steps", _LONG * 4),
        ("bias", _PLACE),
        ("bias_steps", _LONG * 4),
        ("lse", _PLACE),
        ("scale", _FLOAT),
        ("softcap", _FLOAT),
        *((name, _INT) for name in ("half", "half_keys", "threads")),
    ]


class BlockSparseSizes(Structure):
    sources: ClassVar = {"block_sparse": "Sizes"}
    _fields_ = [
        *_COUNTS,
        *((name, Strides) for name in ("q", "k", "v")),
        ("strips", _LONG),
        ("row", _LONG),
        ("head", _LONG),
        ("scale", _FLOAT),
        ("merges", _INT),
        ("threads", _INT),
        *((name, _WORD) for name in ("seed_low", "seed_high", "dropped")),
    ]


class BlockSparsePlan(Structure):
    """Addresses of the tensors of a `BlockPlan`, ALiBi's slopes, the number of keys in each row of the batch, and the places
    of tokens, which select the dropout mask."""

    sources: ClassVar = {"block_sparse": "Plan"}
    tensors: ClassVar = ("number", "ends", "block", "table", "order", "limits", "spans", "places", "kv_places")
    _fields_ = [(name, _PLACE) for name in (*tensors, "slopes", "lengths", "document", "token", "key_token")]


class DropoutSizes(Structure):
    sources: ClassVar = {"dropout": "Sizes"}
    _fields_ = [
        *((name, _LONG) for name in ("rows", "tokens", "width", "row", "channel", "part")),
        *((name, _PLACE) for name in ("document", "token")),
        *((name, _WORD) for name in ("seed_low", "seed_high", "dropped")),
        ("threads", _INT),
    ]


class KeptWeights(Structure):
    sources: ClassVar = {"dropout": "Kept"}
    _fields_ = [
        *((name, _LONG) for name in ("batch", "heads", "queries", "keys", "row", "query", "key", "head")),
        *((name, _PLACE) for name in ("document", "token", "key_token")),
        *((name, _WORD) for name in ("seed_low", "seed_high", "dropped")),
        ("threads", _INT),
    ]


class MatrixUnitSizes(Structure):
    sources: ClassVar = {"bf16_amx": "Sizes"}
    _fields_ = [
        *_COUNTS,
        *((name, Strides) for name in ("q", "k", "v", "d_out")),
        ("strips", _LONG),
        ("scale", _FLOAT),
        ("threads", _INT),
    ]


class MatrixUnitPlan(Structure):
    sources: ClassVar = {"bf16_amx": "Plan"}
    _fields_ = [
        *((name, _PLACE) for name in ("number", "ends", "block", "table", "limits", "q_marks", "k_marks")),
        *((name, _LONG) for name in ("q_marks_row", "k_marks_row")),
        ("checks_finite", _INT),
    ]


class WeightStruct(Structure):
    """A matrix, as products read it."""

    sources: ClassVar = dict.fromkeys(("products", "decoding", "encoding"), "Weight")
    _fields_ = [
        *((name, _PLACE) for name in ("codes", "scales", "zeros", "bias")),
        *((name, _LONG) for name in ("outs", "half_bias")),
    ]


class ProductSizes(Structure):
    """One call of products."""

    sources: ClassVar = {"products": "Sizes", "decoding": "ProductSizes", "encoding": "ProductSizes"}
    _fields_ = [
        *((name, _LONG) for name in ("count", "rows", "depth", "group")),
        *((name, _INT) for name in ("kind", "half", "integer", "threads", "activation", "adds", "order")),
    ]


class Product(Structure):
    """Products with matrices of one kind, side by side, in a layer."""

    sources: ClassVar = dict.fromkeys(("decoding", "encoding"), "Product")
    _fields_ = [
        ("weights", _PLACE),
        *((name, _LONG) for name in ("count", "depth", "group", "outs")),
        *((name, _INT) for name in ("kind", "integer")),
        ("adapters", _PLACE),
    ]


class AdapterStruct(Structure):
    """What LoRA adds to one of a product's matrices."""

    sources: ClassVar = dict.fromkeys(("decoding", "encoding"), "Adapter")
    _fields_ = [
        ("b", _PLACE),
        *((name, _LONG) for name in ("first", "outs", "from", "rank")),
        ("scale", _FLOAT),
        ("half", _INT),
    ]


class AdaptersStruct(Structure):
    sources: ClassVar = dict.fromkeys(("decoding", "encoding"), "Adapters")
    _fields_ = [("down", Product), ("each", _PLACE), ("count", _LONG)]


class MixtureStruct(Structure):
    """A mixture of experts."""

    sources: ClassVar = dict.fromkeys(("decoding", "encoding"), "Mixture")
    _fields_ = [
        *((name, _LONG) for name in ("experts", "chosen")),
        ("router", Product),
        *((name, _PLACE) for name in ("bias", "up", "down", "shared", "shared_gate")),
        ("scale", _FLOAT),
        *((name, _INT) for name in ("gates", "normalizes", "activation", "gated")),
        *((name, _INT) for name in ("shared_activation", "shared_gated")),
    ]


class NormStruct(Structure):
    sources: ClassVar = dict.fromkeys(("decoding", "encoding"), "Norm")
    _fields_ = [
        ("weight", _PLACE),
        ("bias", _PLACE),
        ("eps", _FLOAT),
        ("offset", _FLOAT),
        ("kind", _INT),
        ("half", _INT),
    ]


class CacheRow(Structure):
    """Where a row of the batch has its keys and values in a layer."""

    sources: ClassVar = dict.fromkeys(("decoding", "encoding"), "CacheRow")
    _fields_ = [
        *((name, _PLACE) for name in ("k", "v")),
        *((name, _LONG) for name in ("k_head", "v_head", "slot", "keys")),
    ]


class CodesStruct(Structure):
    """The codes of a quantized cache in a layer."""

    sources: ClassVar = {"decoding": "Codes"}
    _fields_ = [
        *((name, _PLACE) for name in ("k", "v", "k_scale", "k_zero", "v_scale", "v_zero")),
        *((name, _LONG) for name in ("k_head", "v_head", "k_scales", "v_scales", "groups", "group", "bits")),
    ]


class LayerStruct(Structure):
    """A layer of a stack: its self-attention, cross-attention and feed-forward layer, each with its norms."""

    sources: ClassVar = dict.fromkeys(("decoding", "encoding"), "Layer")
    _fields_ = [
        *((name, NormStruct * 3) for name in ("before", "after", "sum")),
        *((name, NormStruct) for name in ("q_norm", "k_norm")),
        *((name, Product) for name in ("qkv", "out", "cross_q", "cross_out", "up", "down")),
        *((name, AttentionStruct) for name in ("own", "cross")),
        *((name, _PLACE) for name in ("k", "v", "apart", "cross_apart")),
        ("apart_step", _LONG),
        *((name, _PLACE) for name in ("cross_k", "cross_v", "mixture", "codes")),
        ("slot", _LONG),
        *((name, _PLACE) for name in ("cos", "sin")),
        *((name, _LONG) for name in ("table_step", "turned")),
        *((name, _INT) for name in ("interleaved", "norms_all", "activation", "gated")),
        ("has", _INT * 3),
        *((name, _INT) for name in ("parallel", "adds", "causal")),
        *((name, _FLOAT) for name in ("skip", "multiplier")),
    ]


class StepStruct(Structure):
    """All layers over some rows of tokens."""

    sources: ClassVar = dict.fromkeys(("decoding", "encoding"), "Step")
    _fields_ = [
        ("layers", _PLACE),
        *((name, _LONG) for name in ("count", "rows", "width", "scratch")),
        *((name, _PLACE) for name in ("products", "by_panels", "available")),
        ("norm", NormStruct),
        *((name, _INT) for name in ("threads", "half", "order")),
        *((name, _PLACE) for name in ("starts", "offsets")),
        *((name, _LONG) for name in ("sequences", "row", "out_row")),
        ("room", _PLACE),
    ]


class RowParts(Structure):
    """Bytes from one row and head of a cache's buffer to the next, and of the used part of a head."""

    sources: ClassVar = {"decoding": "Parts"}
    _fields_ = [(name, _LONG) for name in ("row", "head", "used")]


class GradientSizes(Structure):
    sources: ClassVar = {"weight_gradients": "Sizes"}
    _fields_ = [
        *((name, _LONG) for name in ("rows", "outs", "columns", "d_step", "x_step")),
        *((name, _INT) for name in ("adds", "threads")),
    ]


class QuantizedSizes(Structure):
    sources: ClassVar = dict.fromkeys(("quantized_kv", "quantized_kv_amx"), "Sizes")
    _fields_ = [
        *((name, _LONG) for name in ("heads", "groups", "rows", "width", "held")),
        *((name, _LONG) for name in ("jump", "jump_scales", "stride", "parts")),
        *((name, _INT) for name in ("bits", "threads")),
    ]


class _FieldLayout(ctypes.Structure):
    """The `FieldLayout` of structures.h."""

    _fields_ = [("name", ctypes.c_char_p), ("offset", _LONG), ("size", _LONG)]


Layout = list[tuple[str, int, int]]  # ("", 0, size of the structure), and each field's name, offset and size


def mismatch(library: str, loaded: ctypes.CDLL) -> str | None:
    """How a structure differs from the library's, in words; None if all are the same.

    A library without kernels, because the processor lacks instructions for them, has no structures.
    """
    for structure in Structure.__subclasses__():
        theirs = exported(loaded, structure.sources.get(library, ""))
        different = sorted(set(theirs) ^ set(layout_of(structure)), key=lambda field: field[1]) if theirs else []
        if different:
            name = different[0][0]
            where = f"the field {name}" if name else "its size"
            return f"{structure.__name__} in structures.py isn't {structure.sources[library]} of the source: {where} differs"
    return None


def layout_of(structure: type[Structure]) -> Layout:
    fields: list[tuple[str, Any]] = [(field[0], getattr(structure, field[0])) for field in structure._fields_]
    return [("", 0, ctypes.sizeof(structure)), *((name, field.offset, field.size) for name, field in fields)]


def exported(loaded: ctypes.CDLL, name: str) -> Layout:
    """The layout of the source's structure; empty if the library has none of that name."""
    call = getattr(loaded, f"qkv_layout_{name}", None)
    if call is None:
        return []
    call.restype = ctypes.POINTER(_FieldLayout)
    return list(_until_null(call()))


def _until_null(fields: Any) -> Iterator[tuple[str, int, int]]:
    for field in fields:  # without an end
        if field.name is None:
            return
        yield field.name.decode(), field.offset, field.size
