"""qkv: every Transformer from one small core.

Names are loaded when they are first used, so that `import qkv` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "core.attend": ["attend", "merge"],
    "core.layout": ["Layout", "Role"],
    "core.patterns": [
        *["Pattern", "full", "causal", "window", "sinks", "prefix", "documents", "global_tokens"],
        *["dilated", "strided", "fixed", "chunks", "blocks", "random_blocks", "neighborhood", "axial", "by_head"],
        *["Full", "Causal", "Window", "Sinks", "Prefix", "Documents", "Global", "Dilated", "Strided", "Fixed"],
        *["Chunks", "RandomBlocks", "Neighborhood", "Axial", "ByHead"],
    ],
    "core.bigbird": ["BigBird"],
    "core.patches": ["Patches", "States", "GridPosition", "masked_layout"],
    "core.positions": ["Position", "NoPosition", "Sinusoidal", "Learned", "Rotary", "ALiBi", "T5Buckets"],
    "core.scalings": ["Scaling", "LinearScaling", "NTK", "DynamicNTK", "YaRN", "Llama3Scaling", "LongRoPE"],
    "core.norm": ["Norm", "NoNorm", "LayerNorm", "RMSNorm"],
    "core.feedforward": ["FeedForwardLayer", "FeedForward", "NoFeedForward"],
    "core.moe": ["MixtureOfExperts"],
    "core.embedding": ["Embedding"],
    "core.lora": ["adapt", "Adapter", "LoRA", "fold"],
    "core.spec": ["Spec", "Cost"],
    "core.batch": ["Batch", "Term", "Terms"],
    "core.cache": ["Cache"],
    "core.caches": ["CacheKind", "FullCache", "QuantizedCache", "SinkCache", "PagedCache"],
    "core.mechanisms.features": ["FeatureMap", "Elu1", "Relu", "Favor"],
    "core.pooling": ["pool", "KernelRegression"],
    "core.ring": ["ring"],
    "core.scores": ["Score", "ScaledDot", "Dot", "General", "Additive", "Concat", "Gaussian", "ExactMatch"],
    "core.tap": ["record", "weights"],
    "data.vectors": ["Vectors"],
    "model.attention": ["Attention", "Mixer"],
    "model.block": ["Block"],
    "model.block_sparse": ["BlockSparseAttention"],
    "model.global_attention": ["GlobalAttention"],
    "model.heads": [
        "Head",
        "LanguageModel",
        "TokenClassifier",
        "Transform",
        "Pooler",
        "Classifier",
        "SequenceClassifier",
    ],
    "model.initial": ["Initialization", "Glorot", "Normal", "T5Normal"],
    "model.latent_attention": ["LatentAttention"],
    "model.linear_attention": ["LinearAttention"],
    "model.linformer": ["Linformer"],
    "model.lsh_attention": ["LSHAttention"],
    "model.performer": ["Performer"],
    "model.replace": ["replace"],
    "model.stack": ["Stack"],
    "model.transformer": ["Transformer", "TransformerModel"],
    "model.vision": ["ImageClassifier", "PixelDecoder", "MaskTokens", "Detector"],
    "families": ["preset"],
    "data.sources": ["Source"],
    "data.tokenizer": ["Tokenizer"],
    "train.objective": ["Objective"],
    "generate.settings": ["Generation"],
    "run.adapters": ["load_adapter", "save_adapter"],
    "run.build": ["build"],
    "run.load": ["load", "Run"],
    "run.recipe": ["Recipe"],
}
_NAMES = {name: f"qkv.{module}" for module, names in _HOME.items() for name in names}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'qkv' has no attribute {name!r}")
    value = getattr(importlib.import_module(_NAMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


if TYPE_CHECKING:
    from .core.attend import attend, merge
    from .core.batch import Batch, Term, Terms
    from .core.bigbird import BigBird
    from .core.cache import Cache
    from .core.caches import CacheKind, FullCache, PagedCache, QuantizedCache, SinkCache
    from .core.embedding import Embedding
    from .core.feedforward import FeedForward, FeedForwardLayer, NoFeedForward
    from .core.layout import Layout, Role
    from .core.lora import Adapter, LoRA, adapt, fold
    from .core.mechanisms.features import Elu1, Favor, FeatureMap, Relu
    from .core.moe import MixtureOfExperts
    from .core.norm import LayerNorm, NoNorm, Norm, RMSNorm
    from .core.patches import GridPosition, Patches, States, masked_layout
    from .core.patterns import (
        Axial,
        ByHead,
        Causal,
        Chunks,
        Dilated,
        Documents,
        Fixed,
        Full,
        Global,
        Neighborhood,
        Pattern,
        Prefix,
        RandomBlocks,
        Sinks,
        Strided,
        Window,
        axial,
        blocks,
        by_head,
        causal,
        chunks,
        dilated,
        documents,
        fixed,
        full,
        global_tokens,
        neighborhood,
        prefix,
        random_blocks,
        sinks,
        strided,
        window,
    )
    from .core.pooling import KernelRegression, pool
    from .core.positions import ALiBi, Learned, NoPosition, Position, Rotary, Sinusoidal, T5Buckets
    from .core.ring import ring
    from .core.scalings import NTK, DynamicNTK, LinearScaling, Llama3Scaling, LongRoPE, Scaling, YaRN
    from .core.scores import Additive, Concat, Dot, ExactMatch, Gaussian, General, ScaledDot, Score
    from .core.spec import Cost, Spec
    from .core.tap import record, weights
    from .data.sources import Source
    from .data.tokenizer import Tokenizer
    from .families import preset
    from .generate.settings import Generation
    from .model.attention import Attention, Mixer
    from .model.block import Block
    from .model.block_sparse import BlockSparseAttention
    from .model.global_attention import GlobalAttention
    from .model.heads import Classifier, Head, LanguageModel, Pooler, TokenClassifier, Transform
    from .model.initial import Glorot, Initialization, Normal, T5Normal
    from .model.latent_attention import LatentAttention
    from .model.linear_attention import LinearAttention
    from .model.linformer import Linformer
    from .model.lsh_attention import LSHAttention
    from .model.performer import Performer
    from .model.replace import replace
    from .model.stack import Stack
    from .model.transformer import Transformer, TransformerModel
    from .model.vision import Detector, ImageClassifier, MaskTokens, PixelDecoder
    from .run.adapters import load_adapter, save_adapter
    from .run.build import build
    from .run.load import Run, load
    from .run.recipe import Recipe
    from .train.objective import Objective
