"""Layers as the fused step's kernels describe them, if they have all that the modules do."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from functools import cache
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from ...attention.multi_head import MultiHeadAttention
from ...kernels.native import decoding
from ...kernels.native import layers as native
from ...kernels.native.products import Matrix
from ...kernels.native.structures import (
    AdaptersStruct,
    AdapterStruct,
    AttentionStruct,
    LayerStruct,
    MixtureStruct,
    NormStruct,
    Product,
)
from ...kernels.plain import PLAIN
from ...kernels.products.integers import has_integer_products, matrix_of
from ...layers.feedforward import ACTIVATIONS, FeedForwardNet
from ...layers.grouped_linear import GroupedLinear
from ...layers.linear import Linear
from ...layers.lora import LoRALinear
from ...layers.moe import Mixture, Router
from ...layers.norm import LayerNormalize, OffsetRMSNormalize, RMSNormalize
from ...layers.quantized import QuantizedMatrix
from ...positions.base import PositionModule
from ...positions.rotary import RotaryTurn
from ...quantization.product import integers
from ..block import BlockModule
from ..placement import Parallel

_NAMES = ("attention", "cross", "feedforward")
_DTYPES = (torch.float32, torch.bfloat16)
_NUMBERS = {
    function: native.ACTIVATIONS.index(name) for name, function in ACTIVATIONS.items() if name in native.ACTIVATIONS
}


_CLASSES = (
    BlockModule,
    MultiHeadAttention,
    FeedForwardNet,
    Mixture,
    Router,
    GroupedLinear,
    Linear,
    LoRALinear,
    LayerNormalize,
    RMSNormalize,
    OffsetRMSNormalize,
    RotaryTurn,
    PositionModule,
)
# The methods that the kernels stand for: those that the classes define or inherit from classes of qkv.
_METHODS = [
    (cls, name, getattr(cls, name))
    for cls in _CLASSES
    for name in {name for base in cls.__mro__ if base.__module__.startswith("qkv.") for name in vars(base)}
    if isinstance(getattr(cls, name), FunctionType)
]


class Unfit(Exception):
    """The kernels do not have what a module does. The message says what."""


class Described:
    """What a description points to: it has to stay where it is and as it is while it is used."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self._alive: list[object] = []
        self.scratch = 0  # the most numbers of a row of any product

    def norm(self, module: nn.Module) -> NormStruct:
        if type(module) is nn.Identity:
            return NormStruct()
        if type(module) not in (LayerNormalize, RMSNormalize, OffsetRMSNormalize):
            raise Unfit(f"the norm {type(module).__name__}")
        weight, bias = module.weight, getattr(module, "bias", None)
        assert isinstance(weight, Tensor)
        kind = native.LAYER_NORM if isinstance(module, LayerNormalize) else native.RMS_NORM
        place, bias_place = self._place(weight), None if bias is None else self._place(bias)
        offset = getattr(module, "offset", 0.0)
        return NormStruct(place, bias_place, module.eps, offset, kind, weight.dtype == torch.bfloat16)

    def product(self, *modules: nn.Module) -> Product:
        """The products of one input with several layers, side by side."""
        matrices = [self._matrix(module) for module in modules]
        if len({self._kind(matrix) for matrix in matrices}) > 1:
            raise Unfit("matrices of different formats beside each other")
        activations = {getattr(module.weight, "activations", "none") for module in modules}
        if activations not in ({"none"}, {"int8"}):
            raise Unfit(f"activations in {' and '.join(sorted(activations))}")
        made = self._product(matrices, activations == {"int8"})
        made.adapters = self._adapters(modules)
        return made

    def _product(self, matrices: list[Matrix], integer: bool = False) -> Product:
        made, weights = native.product_of(matrices, integer)
        self._alive += [weights, matrices]
        self.scratch = max(self.scratch, made.outs, made.depth)
        return made

    def _adapters(self, modules: Sequence[nn.Module]) -> int | None:
        """Where the adapters of linear layers are described, if any has one."""
        adapted = [module for module in modules if type(module) is LoRALinear and not module.merged]
        if not adapted:
            return None
        if len({module.lora_a.dtype for module in adapted}) > 1:
            raise Unfit("adapters of different dtypes beside each other")
        each, first, rank = (AdapterStruct * len(adapted))(), 0, 0
        for module in modules:
            if module in adapted:
                self._place(module.lora_a)
                b, i = self._place(module.lora_b), adapted.index(module)
                half = module.lora_b.dtype == torch.bfloat16
                each[i] = AdapterStruct(b, first, module.out_features, rank, module.rank, module.scale, half)
                rank += module.rank
            assert isinstance(module, Linear)
            first += module.out_features
        down = self._product([Matrix(module.lora_a) for module in adapted])
        return self.place_of(AdaptersStruct(down, ctypes.addressof(each), len(adapted)), each)

    def place_of(self, made: ctypes.Structure | ctypes.Array[Any], *more: object) -> int:
        """The address of a structure, which is kept with others that it points to."""
        self._alive += [made, *more]
        return ctypes.addressof(made)

    def experts(self, *layers: GroupedLinear) -> int:
        """Where the products of all experts are described, each of one input with several layers, side by side."""
        weights = [layer.weight for layer in layers]
        integer = {getattr(weight, "activations", "none") for weight in weights}
        if integer not in ({"none"}, {"int8"}):
            raise Unfit(f"activations in {' and '.join(sorted(integer))}")
        matrices = [self._experts(weight) for weight in weights]
        if len({self._kind(own[0]) for own in matrices}) > 1:
            raise Unfit("matrices of different formats beside each other")
        products = [self._product(list(each), integer == {"int8"}) for each in zip(*matrices, strict=True)]
        return self.place_of((Product * len(products))(*products))

    def _experts(self, weight: nn.Parameter | QuantizedMatrix) -> list[Matrix]:
        if isinstance(weight, Tensor):
            self._place(weight)
            return [Matrix(own) for own in weight.detach()]
        (codes, _, scales, zeros), height = self._codes(weight, None), weight.dense_shape[1]
        places = [slice(start, start + height) for start in range(0, len(codes), height)]
        return [
            Matrix(codes[own], None, None if scales is None else scales[own], None if zeros is None else zeros[own])
            for own in places
        ]

    def matrix(self, weight: Tensor) -> Product:
        """The product with a matrix."""
        self._place(weight)
        return self._product([Matrix(weight.detach())])

    def numbers(self, x: Tensor) -> int:
        """Where numbers in fp32 are."""
        if x.dtype != torch.float32:
            raise Unfit(f"a router's bias in {x.dtype}")
        return self._keep(x)

    def _matrix(self, module: nn.Module) -> Matrix:
        """The weight and the bias of a linear layer."""
        if type(module) not in (Linear, LoRALinear):
            raise Unfit(f"the linear layer {type(module).__name__}")
        assert isinstance(module, Linear)
        if module.bias is not None:
            self._place(module.bias)
        if isinstance(module.weight, Tensor):
            self._place(module.weight)
            return Matrix(module.weight, module.bias)
        return self._codes(module.weight, module.bias)

    def _codes(self, weight: object, bias: Tensor | None) -> Matrix:
        assert isinstance(weight, QuantizedMatrix)
        codes = integers(weight.packed)
        if codes is None:
            raise Unfit("weights in another format than fp32, bf16, symmetric int8, and int4")
        if weight.activations == "int8" and not has_integer_products(codes):
            raise Unfit("activations in int8 with groups of this size")
        for tensor in (weight.codes, weight.scales, weight.zeros):
            if tensor is not None:
                self._keep(tensor)
        return matrix_of(codes, bias)

    @staticmethod
    def _kind(matrix: Matrix) -> tuple[object, ...]:
        """What matrices of one product have in common."""
        return matrix.codes.dtype, matrix.codes.shape[1], matrix.scales is not None and matrix.scales.shape[1]

    def _place(self, tensor: Tensor) -> int:
        if tensor.dtype not in _DTYPES or type(tensor) not in PLAIN:
            raise Unfit(f"parameters of {tensor.dtype} in a {type(tensor).__name__}")
        return self._keep(tensor)

    def _keep(self, tensor: Tensor) -> int:
        if tensor.device.type != "cpu" or not tensor.is_contiguous():
            raise Unfit("parameters on another device, or with gaps")
        self.tensors.append(tensor)
        return tensor.data_ptr()


def layer(block: nn.Module, known: Described) -> LayerStruct:
    """A block. Raises `Unfit` if the kernels can't do the same."""
    if type(block) is not BlockModule or len(block.scale) or block.training:
        raise Unfit("training, layer scales, or another block")
    made = LayerStruct(skip=block.skip, multiplier=block.multiplier, adds=block.residual)
    made.parallel = type(block.placement).forward is Parallel.forward
    if not (block.placement.in_turn or made.parallel) or block.placement.streams > 1:
        raise Unfit(f"the placement {type(block.placement).__name__}")
    before = {} if block.norms_sum else dict(block.norm.items())
    total = block.norm if block.norms_sum else block.norm_sum
    for i, name in enumerate(_NAMES):
        made.has[i] = name in block.sublayers
        for place, norms in ((made.before, before), (made.after, block.norm_after), (made.sum, total)):
            if name in norms:
                place[i] = known.norm(norms[name])
    if made.has[native.OWN]:
        _attention(made, block.attention, known)
    if made.has[native.CROSS]:
        _cross(made, block.cross, known)
    if made.has[native.FEED_FORWARD]:
        _feedforward(made, block.feedforward, known)
    return made


def _attention(made: LayerStruct, module: nn.Module, known: Described) -> None:
    made.own = _described(module, known)
    assert isinstance(module, MultiHeadAttention)
    made.q_norm, made.k_norm, made.norms_all = known.norm(module.q_norm), known.norm(module.k_norm), module.norms_all
    made.qkv, made.out = known.product(module.q, module.k, module.v), known.product(module.out)


def _cross(made: LayerStruct, module: nn.Module | None, known: Described) -> None:
    if not isinstance(module, MultiHeadAttention) or type(module.q_norm) is not nn.Identity:
        raise Unfit("cross-attention with normalized queries, or of another kind")
    made.cross = _described(module, known)
    made.cross_q, made.cross_out = known.product(module.q), known.product(module.out)


def _described(module: nn.Module, known: Described) -> AttentionStruct:
    """Attention without what changes from step to step."""
    if type(module) is not MultiHeadAttention or module.training:
        raise Unfit(f"the attention {type(module).__name__}")
    special = {
        f"the score {type(module.score).__name__}": module.score is not None,
        f"the weighting {type(module.weighting).__name__}": module.weighting is not None,
        "attention sinks": module.sinks is not None,
        "attention without some of its heads": module.kept_heads is not None,
        f"the attention backend {module.backend}": module.backend != "auto",
        "patterns without a size": bool(module.pattern.unsized),
    }
    for what, there in special.items():
        if there:
            raise Unfit(what)
    for width in (module.d_head, module.d_value):
        if width % decoding.UNIT or width > decoding.WIDEST:
            raise Unfit(f"heads of width {width}; it has multiples of {decoding.UNIT} up to {decoding.WIDEST}")
    scale = module.scale if module.scale is not None else module.d_head**-0.5
    made = AttentionStruct(scale=scale, softcap=module.softcap or 0.0)
    made.heads, made.kv_heads, made.width, made.values = (
        module.n_heads,
        module.n_kv_heads,
        module.d_head,
        module.d_value,
    )
    return made


def _feedforward(made: LayerStruct, module: nn.Module, known: Described) -> None:
    if type(module) is Mixture:
        made.mixture = known.place_of(_mixture(module, known))
        return
    if type(module) is not FeedForwardNet or module.activation not in _NUMBERS or module.training:
        raise Unfit(f"the feed-forward layer {type(module).__name__}, or its activation")
    made.activation, made.gated = _NUMBERS[module.activation], module.gate is not None
    first: Sequence[nn.Module] = (module.up,) if module.gate is None else (module.gate, module.up)
    made.up, made.down = known.product(*first), known.product(module.down)


def _mixture(module: Mixture, known: Described) -> MixtureStruct:
    spec, router = module.spec, module.router
    if spec.activation not in native.ACTIVATIONS or module.training:
        raise Unfit(f"experts with the activation {spec.activation}")
    made = MixtureStruct(experts=spec.n_experts, chosen=spec.top_k, scale=spec.scale, gated=spec.gated)
    made.router, made.bias = known.matrix(router.weight), None if router.bias is None else known.numbers(router.bias)
    made.gates, made.normalizes = native.GATES.index(spec.score), router.renormalize
    made.activation = native.ACTIVATIONS.index(spec.activation)
    made.up = known.experts(module.up) if module.gate is None else known.experts(module.gate, module.up)
    made.down = known.experts(module.down)
    if module.shared is not None:
        layer = LayerStruct()
        _feedforward(layer, module.shared, known)
        if layer.mixture:
            raise Unfit("a mixture shared by the tokens of a mixture")
        made.shared = known.place_of((Product * 2)(layer.up, layer.down))
        made.shared_activation, made.shared_gated = layer.activation, layer.gated
    if module.shared_gate is not None:
        made.shared_gate = known.place_of(known.product(module.shared_gate))
    return made


def is_simple(position: PositionModule) -> bool:
    """Whether a position module turns no queries and keys, or as `Rotary` does."""
    if type(position) is RotaryTurn:
        return True
    turning = ("tables", "rotate", "rotate_queries", "rotate_keys")
    return all(getattr(type(position), name) is getattr(PositionModule, name) for name in turning)


def are_original() -> bool:
    """Whether nobody has replaced a method of the classes that the kernels stand for."""
    for cls, name, method in _METHODS:  # noqa: SIM110  # a generator is slower, and this is asked before every search
        if getattr(cls, name) is not method:
            return False
    return True


def settings_of(modules: Iterable[nn.Module]) -> list[dict[str, Any]]:
    """The attributes of modules and of their submodules. Raises `Unfit` if one is in the place of a method."""
    every = [each for module in modules for each in module.modules()]
    kinds: list[Any] = [type(each) for each in every]
    if not are_original() or not all(_methods(kind).isdisjoint(vars(x)) for kind, x in zip(kinds, every, strict=True)):
        raise Unfit("methods that were replaced")
    return [vars(each) for each in every]


@cache
def _methods(kind: type[nn.Module]) -> frozenset[str]:
    return frozenset(name for name in dir(kind) if callable(getattr(kind, name, None)))


def hooks_of(module: nn.Module) -> list[Any]:
    """The tables of hooks of a module and its submodules; all are empty if nothing watches them."""
    names = ("_forward_hooks", "_forward_pre_hooks")
    return [getattr(each, name) for each in module.modules() for name in names]
