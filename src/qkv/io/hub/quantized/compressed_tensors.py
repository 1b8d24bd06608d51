"""compressed-tensors' layout, of llm-compressor and vLLM: its formats int-quantized, pack-quantized, float-quantized and
mxfp4-pack-quantized, read and written.

`weight_scale` (d_out, groups), with `weight` int8 or fp8 (d_out, d_in), or `weight_packed`: int32 words of unsigned
codes with `weight_shape`, or for mxfp4 bytes. Zero points `weight_zero_point` of packed weights are packed along d_out.
`weight_g_idx` names the group of each input if neighbors are in different groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, NotRequired

import torch
from pydantic import Field, TypeAdapter
from torch import Tensor
from typing_extensions import TypedDict

from ....core.spec import brief
from ....nn.quantization.formats import Packed, format_of
from ....nn.quantization.scheme import Activations
from ..files import WeightFiles
from ..transforms import Shape
from .layout import QuantizedLayout, pack_int32, sorted_columns, unpack_int32

FORMATS = {"int8": "int-quantized", "int4": "pack-quantized", "fp8": "float-quantized", "mxfp4": "mxfp4-pack-quantized"}
"""compressed-tensors' names of our formats."""
_BITS = {"int8": 8, "int4": 4, "fp8": 8, "mxfp4": 4}


class _Numbers(TypedDict):
    num_bits: NotRequired[int | None]
    type: NotRequired[str | None]
    dynamic: NotRequired[bool | str | None]


class _Group(TypedDict):
    weights: NotRequired[_Numbers | None]
    input_activations: NotRequired[_Numbers | None]
    targets: NotRequired[list[str] | None]
    format: NotRequired[str | None]


class _Config(TypedDict):
    config_groups: Annotated[dict[str, _Group], Field(min_length=1)]
    format: NotRequired[str | None]


class CompressedTensors(QuantizedLayout):
    """Matrices of int8, int4, fp8 and mxfp4. Raises ValueError for other formats."""

    # fmt: off
    parts = (
        ".weight", ".weight_packed", ".weight_scale", ".weight_shape", ".weight_zero_point", ".weight_g_idx",
        ".input_scale", ".input_zero_point",
    )
    # fmt: on

    schema = TypeAdapter(_Config)

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        groups = config["config_groups"]
        formats = {str(group.get("format") or config.get("format")) for group in groups.values()}
        known = {*FORMATS.values(), "naive-quantized"}
        if unknown := sorted(formats - known):
            raise ValueError(
                f"the format {brief(unknown[0])} of compressed-tensors is not read; {', '.join(sorted(known))} are"
            )
        self.groups = list(groups.values())

    @property
    def usual_weights(self) -> str:
        weights = self.groups[0].get("weights") or {}
        bits, kind = weights.get("num_bits"), weights.get("type")
        return f"int{bits}" if kind != "float" else "fp8" if bits == 8 else "mxfp4"

    def layers(self, weights: WeightFiles) -> Iterator[str]:
        return (n.removesuffix(".weight_scale") for n in weights.shapes if n.endswith(".weight_scale"))

    def shape(self, layer: str, weights: WeightFiles) -> Shape:
        if f"{layer}.weight_packed" not in weights.shapes:
            return weights.shapes[f"{layer}.weight"]
        if f"{layer}.weight_shape" in weights.shapes:
            d_out, d_in = weights.read(f"{layer}.weight_shape").tolist()
            return (d_out, d_in)
        d_out, n_bytes = weights.shapes[f"{layer}.weight_packed"]
        return (d_out, 2 * n_bytes)

    def activations(self, layer: str) -> Activations:
        inputs = self._group(layer).get("input_activations")
        if not inputs or not inputs.get("dynamic"):
            return "none"
        return "fp8" if inputs.get("type") == "float" else "int8"

    def read(self, layer: str, weights: WeightFiles) -> Packed:
        parts = {part: weights.read(layer + part) for part in self.parts if layer + part in weights.shapes}
        d_out, d_in = self.shape(layer, weights)
        scales = parts[".weight_scale"]
        if ".weight_packed" in parts and parts[".weight_packed"].dtype == torch.uint8:
            return Packed(format_of("mxfp4"), (d_out, d_in), parts[".weight_packed"], scales.view(torch.uint8))
        scales = scales.float().reshape(-1, scales.shape[-1] if scales.ndim > 1 else 1).expand(d_out, -1).contiguous()
        zeros = parts.get(".weight_zero_point")
        if ".weight_packed" not in parts:
            codes = parts[".weight"]
            if codes.dtype == torch.float8_e4m3fn:
                return format_of("fp8").packed(codes, scales, None)
            zeros = None if zeros is None else zeros.reshape(scales.shape).to(torch.int8)
            return _integers(8, codes, scales, zeros, parts.get(".weight_g_idx"))
        words, bits = parts[".weight_packed"], self._bits(layer)
        codes = unpack_int32(words, bits)[:, :d_in].int() - (1 << (bits - 1))
        if zeros is not None:
            zeros = (unpack_int32(zeros.T, bits).T[:d_out].int() - (1 << (bits - 1))).to(torch.int8)
        return _integers(bits, codes.to(torch.int8), scales, zeros, parts.get(".weight_g_idx"))

    def _bits(self, layer: str) -> int:
        bits = (self._group(layer).get("weights") or {}).get("num_bits")
        if bits not in (4, 8):
            raise ValueError(f"{layer} has weights of {brief(bits)} bits, and packed weights are read with 4 or 8")
        return int(bits)

    def _group(self, layer: str) -> Mapping[str, Any]:
        """The scheme that names a layer, or else the first."""
        named = (group for group in self.groups if layer in (group.get("targets") or ()))
        return next(named, self.groups[0])


def _integers(bits: int, codes: Tensor, scales: Tensor, zeros: Tensor | None, group_of: Tensor | None) -> Packed:
    format = format_of(f"int{bits}")
    codes, order = sorted_columns(codes, group_of, codes.shape[1] // scales.shape[1])
    zeros = None if zeros is None or not bool(zeros.any()) else zeros.contiguous()
    packed = format.packed(codes, scales, zeros)
    return Packed(format, packed.shape, packed.codes, packed.scales, zeros, order)


@dataclass(frozen=True)
class CompressedMatrix:
    """A quantized matrix to write."""

    packed: Packed
    activations: Activations


class _Key(NamedTuple):
    """What the layers of a scheme have in common."""

    format: str
    group: int | None
    symmetric: bool
    activations: Activations


def tensors(packed: Packed) -> dict[str, Tensor]:
    """The tensors of a matrix by their endings."""
    name, (d_out, d_in) = packed.format.name, packed.shape
    if name == "mxfp4":
        return {".weight_packed": packed.codes, ".weight_scale": packed.scales}
    codes, group_of = packed.format.unpack(packed.codes), None
    if packed.order is not None:
        order = packed.order.long()
        codes = codes[:, order.argsort()]
        group_of = torch.empty_like(packed.order).index_copy_(
            0, order, torch.arange(d_in, dtype=torch.int32, device=order.device) // packed.group
        )
    parts = {".weight_scale": packed.scales} | ({} if group_of is None else {".weight_g_idx": group_of})
    if name != "int4":
        return {".weight": codes, **parts} | ({} if packed.zeros is None else {".weight_zero_point": packed.zeros})
    parts[".weight_packed"] = pack_int32((codes + 8).to(torch.uint8), 4)
    parts[".weight_shape"] = torch.tensor([d_out, d_in])
    if packed.zeros is not None:
        parts[".weight_zero_point"] = pack_int32((packed.zeros.T + 8).to(torch.uint8), 4).T
    return parts


def config(stored: Mapping[str, CompressedMatrix], ignored: Sequence[str]) -> dict[str, Any]:
    """`quantization_config` for matrices by the names of their layers; `ignored` are linear layers in full precision."""
    groups: dict[_Key, list[str]] = {}
    for layer, one in stored.items():
        packed = one.packed
        group = None if packed.scales.shape[1] == 1 else packed.group
        groups.setdefault(_Key(packed.format.name, group, packed.zeros is None, one.activations), []).append(layer)
    schemes = {f"group_{i}": _scheme(key, targets) for i, (key, targets) in enumerate(groups.items())}
    formats = {scheme["format"] for scheme in schemes.values()}
    return {
        "quant_method": "compressed-tensors",
        "format": formats.pop() if len(formats) == 1 else "mixed-precision",
        "quantization_status": "compressed",
        "config_groups": schemes,
        "ignore": sorted(ignored),
        "kv_cache_scheme": None,
        "global_compression_ratio": None,
    }


def _scheme(key: _Key, targets: list[str]) -> dict[str, Any]:
    inputs = {"num_bits": 8, "type": "float" if key.activations == "fp8" else "int", "symmetric": True}
    weights: dict[str, Any] = {
        "num_bits": _BITS[key.format],
        "type": "int" if key.format.startswith("int") else "float",
        "symmetric": key.symmetric,
        "strategy": "channel" if key.group is None else "group",
        "group_size": key.group,
        "dynamic": False,
    }
    return {
        "targets": targets,
        "weights": weights,
        "input_activations": None if key.activations == "none" else {**inputs, "strategy": "token", "dynamic": True},
        "output_activations": None,
        "format": FORMATS[key.format],
    }
