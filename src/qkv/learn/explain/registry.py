"""Names of the explanations, what each needs of a model, and `explain`, which computes one."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from ...core.spec import brief
from ...nn.layers.lora import layers as adapted_layers
from ...nn.layers.moe import Mixture
from ...nn.models.recurrent.attention import AttentiveDecoder
from ...nn.models.recurrent.model import RecurrentModel
from ...nn.models.transformer import TransformerModel
from ..concepts import find, near
from .explanation import Explanation
from .subject import Subject


class ExplanationEntry(NamedTuple):
    """The module of an explanation, one line about it, and what a model needs for it."""

    module: str
    about: str
    needs: str


EXPLANATIONS: dict[str, ExplanationEntry] = {
    "attention": ExplanationEntry(
        "attention", "similarities, scaling, soft-max and weighted sum for one query", "attention layers"
    ),
    "multihead": ExplanationEntry(
        "multihead", "projections, heads, concatenation and output projection", "multi-head attention"
    ),
    "mask": ExplanationEntry(
        "mask", "a causal mask: why scores are masked, and not weights", "a decoder with self-attention"
    ),
    "cross": ExplanationEntry("cross", "a decoder's query over the tokens of a source", "cross-attention to a source"),
    "decoder-step": ExplanationEntry(
        "decoder_step", "the third target word of a five-word source", "cross-attention to a source"
    ),
    "bahdanau": ExplanationEntry(
        "bahdanau", "an RNN's alignment with its source", "a recurrent decoder with attention"
    ),
    "position": ExplanationEntry(
        "position", "positional encodings and their dot products by distance", "positional encodings"
    ),
    "bpe": ExplanationEntry("bpe", "where each merge of a tokenizer comes from", "a subword tokenizer"),
    "beam": ExplanationEntry("beam", "each step of a beam search", "a model that generates texts"),
    "layernorm": ExplanationEntry("layernorm", "the normalization of one token's vector", "normalization layers"),
    "flash": ExplanationEntry("flash", "the online soft-max of FlashAttention, tile by tile", "attention layers"),
    "kv-cache": ExplanationEntry("kv_cache", "a decoding step with and without its cache", "a decoder with a KV cache"),
    "moe": ExplanationEntry("moe", "a router's choice of experts, and their load", "a mixture of experts"),
    "lora": ExplanationEntry("lora", "a low-rank update of a matrix", "a LoRA adapter"),
    "backprop": ExplanationEntry("backprop", "a backward pass of attention by hand", "attention layers"),
}


def explain(name: str, subject: Subject | None = None) -> Explanation:
    """Return an explanation by name, or by a word of `concepts.yaml`: of its worked example, or with the numbers of a model.

    Raises ValueError for an unknown name, a model that does not have what is explained, and a layer, head or token where
    there is none to choose.
    """
    name = resolved(name)
    module = import_module(f".computations.{EXPLANATIONS[name].module}", __package__)
    if subject is None:
        example: Explanation = module.example()
        return example
    usable = applicable(subject)
    if name not in usable:
        instead = f"explain {_either(usable)} with it" if usable else "no explanation applies to it"
        raise ValueError(
            f"{subject.name} does not have {EXPLANATIONS[name].needs}, which {name} explains; {instead}, or run "
            f"`qkv explain {name}` for a worked example"
        )
    explained: Explanation = module.of(subject)
    for what in ("layer", "head", "token"):
        if getattr(subject, what) is not None and what not in subject.consulted:
            raise ValueError(f"{name} has no {what} to choose in {subject.name}; leave it out")
    return explained


def resolved(name: str) -> str:
    """The name of the explanation that a name or a word of the field means.

    Raises ValueError with the nearest words for an unknown one, and with the place of a concept without an explanation.
    """
    if isinstance(name, str) and name in EXPLANATIONS:
        return name
    concept = find(name) if isinstance(name, str) else None
    if concept is None:
        raise ValueError(f"there is no explanation {brief(name)}; {near(name, EXPLANATIONS)}")
    if not concept.explanation:
        raise ValueError(
            f"{brief(name)} is no computation to explain step by step; `qkv tour {concept.tour}` teaches it, and "
            f"`{concept.command}` shows it"
        )
    return concept.explanation


def applicable(subject: Subject) -> list[str]:
    """The explanations that a model has numbers for."""
    model = subject.model
    names = set[str]()
    if isinstance(model, TransformerModel):
        names |= _of_transformer(model)
    if isinstance(model, RecurrentModel) and isinstance(model.decoder, AttentiveDecoder):
        names.add("bahdanau")
    if subject.reader is not None and subject.reader.kind in ("bpe", "wordpiece", "unigram"):
        names.add("bpe")
    if subject.start is not None or (isinstance(model, TransformerModel) and "kv-cache" in names):
        names.add("beam")
    return [name for name in EXPLANATIONS if name in names]


def _of_transformer(model: TransformerModel) -> set[str]:
    modules = list(model.modules())
    names = {"layernorm"} if any(type(module).__name__.endswith("Normalize") for module in modules) else set()
    first, decoder = model.encoder or model.decoder, model.decoder
    if first is not None and any(getattr(block.attention, "has_weights", False) for block in first.layers):
        names |= {"attention", "multihead", "flash", "backprop"}
    if decoder is not None and any(getattr(block.attention, "has_weights", False) for block in decoder.layers):
        names |= {"mask"}
    if decoder is not None and getattr(model.head, "takes_layout", True) is False:
        names |= {"kv-cache"}
    if model.is_encoder_decoder:
        names |= {"cross", "decoder-step"}
    if any(stack.position.kind != "none" for _, stack in model.spec.stacks()):
        names |= {"position"}
    if any(isinstance(module, Mixture) for module in modules):
        names |= {"moe"}
    return names | ({"lora"} if adapted_layers(model) else set())


def _either(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
