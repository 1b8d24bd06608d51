"""Which models can be exported as graphs: a mechanism that a graph can't say is refused by name, before anything is traced.

A graph is fixed: an operation in it can't be chosen by the values of its inputs. Hashing (LSH), blocks that are gathered,
projections of whole rows (Linformer) and global tokens that are counted are refused here, and so is every mechanism that
has not been tried.
"""

from __future__ import annotations

from ...nn.attention.convolution import ByteNetConvolution, Convolution
from ...nn.attention.latent import LatentAttention
from ...nn.attention.linear import LinearAttention
from ...nn.attention.mixer import Mixer, NoMixer
from ...nn.attention.multi_head import Attention
from ...nn.attention.performer import Performer
from ...nn.layers.embedding import Embedding
from ...nn.layers.patches import Patches
from ...nn.models.block import Block
from ...nn.models.build import AnyModel
from ...nn.models.joint import Joint
from ...nn.models.recurrent.deep import BottomAttention
from ...nn.models.recurrent.model import RecurrentModel
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer, TransformerModel

KEEP = "keep using it with qkv (qkv.load), or train it with attention in its place"
_RECURRENT = (LinearAttention, Performer, Convolution, ByteNetConvolution)
_WITH_PAST = (Attention, LatentAttention, *_RECURRENT)
_WHOLE = (*_WITH_PAST, NoMixer)
_HEADS = ("language-model", "sequence-classifier", "token-classifier", "span", "sentence-vector", "image-classifier")


def check(model: AnyModel, form: str) -> TransformerModel | RecurrentModel:
    """The model, if `form` can say it. Raises ValueError that names the first part that it can't."""
    spec = model.spec
    if isinstance(model, RecurrentModel):
        if isinstance(model.spec.context, BottomAttention):
            raise ValueError(
                f"{form} has no graph of deep recurrent models with bottom-attention; use it with qkv (qkv.load)"
            )
        return model
    if not isinstance(spec, Transformer) or not isinstance(model, TransformerModel):
        raise ValueError(
            f"{form} has graphs of Transformers and of recurrent encoder–decoders here, and this is a model of the kind "
            f"{spec.kind!r}; use it with qkv (qkv.load)"
        )
    for name, stack in spec.stacks():
        if not isinstance(stack.embedding, Embedding | Patches) or isinstance(stack.embedding, Joint):
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
    mixer = block.attention
    if not _is_one_of(mixer, allowed):
        known = ", ".join(kind.kind for kind in allowed)
        raise ValueError(
            f"{form} can't say {where}.attention, {mixer.kind}, for which there is no graph (there is for {known}); {KEEP}"
        )
    if decodes and isinstance(mixer, LinearAttention | Convolution) and not mixer.causal:
        raise ValueError(
            f"{form} has a graph of a decoder that predicts one token after another, and the pattern of {where}.attention, "
            f"{mixer.kind}, is not causal; {KEEP}"
        )
    if block.cross is not None and not _is_one_of(block.cross, (Attention,)):
        raise ValueError(f"{form} can't say {where}.cross, {block.cross.kind}, which is no attention; {KEEP}")
    pattern = getattr(block.attention, "pattern", None)
    if pattern is not None and pattern.unsized:
        raise ValueError(
            f"{form} can't say {where}.attention.pattern, {pattern.kind}, which depends on the number of tokens of a row; "
            "export it with a pattern that depends on positions, such as a window"
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
