"""Which models can be exported as graphs: a mechanism that a graph can't say is refused by name, before anything is traced.

A graph is fixed: no shape and no operation in it may depend on the values of its inputs, and what a decoder remembers is
keys and values. Hashing (LSH), routing tokens to experts, global tokens that are counted, and other states than keys and
values are refused here, and so is every mechanism that has not been tried.
"""

from __future__ import annotations

from typing import Any

from ..attention.latent import LatentAttention
from ..attention.multi_head import Attention, Mixer, NoMixer
from ..layers.embedding import Embedding
from ..layers.moe import MixtureOfExperts
from ..layers.patches import Patches
from ..models.block import Block
from ..models.stack import Stack
from ..models.transformer import Transformer, TransformerModel

KEEP = "keep using it with qkv (qkv.load), or train it with attention in its place"
_WITH_PAST = (Attention, LatentAttention)
_WHOLE = (Attention, NoMixer, LatentAttention)
_HEADS = ("language-model", "sequence-classifier", "token-classifier", "span", "sentence-vector", "image-classifier")


def check(model: Any, form: str) -> TransformerModel:
    """The model, if `form` can say it. Raises ValueError that names the first part that it can't."""
    spec = model.spec
    if not isinstance(spec, Transformer) or not isinstance(model, TransformerModel):
        raise ValueError(
            f"{form} has graphs of Transformers here, and this is a model of the kind {spec.kind!r}, which is stepped "
            "through in Python; use it with qkv (qkv.load)"
        )
    for name, stack in spec.stacks():
        if not isinstance(stack.embedding, Embedding | Patches):
            raise ValueError(
                f"{form} can't say {name}.embedding, {stack.embedding.kind}: there is no name for its input"
            )
        decodes = name == "decoder" and spec.predicts_tokens and spec.head is not None
        _check_stack(name, stack, decodes, form)
    _check_heads(spec, form)
    return model


def _check_stack(name: str, stack: Stack, decodes: bool, form: str) -> None:
    for i, block in enumerate(stack.blocks):
        where = f"{name}.blocks.{i}"
        _check_block(where, block, decodes, form)


def _check_block(where: str, block: Block, decodes: bool, form: str) -> None:
    allowed = _WITH_PAST if decodes else _WHOLE
    if not _is_one_of(block.attention, allowed):
        known = ", ".join(kind.kind for kind in allowed)
        why = (
            "which keeps something else than keys and values while decoding"
            if decodes
            else "for which there is no graph"
        )
        raise ValueError(
            f"{form} can't say {where}.attention, {block.attention.kind}, {why} (there is for {known}); {KEEP}"
        )
    if block.cross is not None and not _is_one_of(block.cross, (Attention,)):
        raise ValueError(f"{form} can't say {where}.cross, {block.cross.kind}, which is no attention; {KEEP}")
    pattern = getattr(block.attention, "pattern", None)
    if pattern is not None and pattern.unsized:
        raise ValueError(
            f"{form} can't say {where}.attention.pattern, {pattern.kind}, which depends on the number of tokens of a row; "
            "export it with a pattern that depends on positions, such as a window"
        )
    if isinstance(block.feedforward, MixtureOfExperts):
        raise ValueError(
            f"{form} can't say {where}.feedforward, moe, in which the router's choice decides the shapes of products; "
            "keep using it with qkv (qkv.load), or train it with a dense feed-forward layer"
        )


def _is_one_of(mixer: Mixer, kinds: tuple[type[Mixer], ...]) -> bool:
    """Whether a mixer is of these very kinds: kinds built on them may do more."""
    return type(mixer) in kinds


def _check_heads(spec: Transformer, form: str) -> None:
    head = spec.head
    if head is not None and head.kind not in _HEADS:
        raise ValueError(
            f"{form} has no names for the outputs of the head {head.kind}; export the model without it: load it with qkv "
            f"and save it with spec.replace(head=None)"
        )
    if not spec.is_encoder_decoder:
        return
    if head is None or head.kind != "language-model":
        raise ValueError(f"{form} has graphs of encoder–decoders that generate texts, and this one's head is {head}")
    assert spec.decoder is not None
    without = next((i for i, block in enumerate(spec.decoder.blocks) if block.cross is None), None)
    if without is not None:
        raise ValueError(f"{form} can't say decoder.blocks.{without}, which does not attend to the encoder; {KEEP}")
    own = next((b.attention.kind for b in spec.decoder.blocks if not isinstance(b.attention, Attention)), None)
    if own is not None:
        raise ValueError(f"{form} has names for keys and values of encoder–decoders, and {own} keeps others; {KEEP}")
