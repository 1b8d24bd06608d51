"""qkv: every Transformer from one small core.

Names are loaded when they are first used, so that `import qkv` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "attention.attend": ["attend", "merge"],
    "core.layout": ["Layout", "Role"],
    "patterns.basic": [
        *["Pattern", "full", "causal", "window", "sinks", "prefix", "documents", "global_tokens"],
        *["dilated", "strided", "fixed", "chunks", "blocks", "random_blocks", "neighborhood", "axial", "by_head"],
        *["Full", "Causal", "Window", "Sinks", "Prefix", "Documents", "Global", "Dilated", "Strided", "Fixed"],
        *["Chunks", "RandomBlocks", "Neighborhood", "Axial", "ByHead"],
    ],
    "patterns.bigbird": ["BigBird"],
    "layers.patches": ["Patches", "States", "GridPosition", "masked_layout"],
    "positions.base": ["Position"],
    "positions.absolute": ["NoPosition", "Sinusoidal", "Learned"],
    "positions.rotary": ["Rotary"],
    "positions.xpos": ["XPos"],
    "positions.bias": ["ALiBi", "T5Buckets"],
    "positions.rope_scaling": ["Scaling", "LinearScaling", "NTK", "DynamicNTK", "YaRN", "Llama3Scaling", "LongRoPE"],
    "layers.norm": ["Norm", "NoNorm", "LayerNorm", "RMSNorm"],
    "layers.feedforward": ["FeedForwardLayer", "FeedForward", "NoFeedForward"],
    "layers.moe": ["MixtureOfExperts"],
    "layers.embedding": ["Embedding"],
    "layers.lora": ["adapt", "Adapter", "LoRA", "fold"],
    "core.spec": ["Spec", "Cost"],
    "core.batch": ["Batch", "Term", "Terms"],
    "kv_cache.cache": ["Cache"],
    "kv_cache.kinds": [
        "CacheKind",
        "FullCache",
        "QuantizedCache",
        "SinkCache",
        "PagedCache",
        "H2OCache",
        "SnapKVCache",
    ],
    "attention.feature_maps": ["FeatureMap", "Elu1", "Relu", "Favor"],
    "attention.weighting": ["Weighting"],
    "attention.scores": ["Score", "ScaledDot", "Dot", "General", "Additive", "Concat", "Gaussian", "ExactMatch"],
    "attention.tap": ["record", "weights"],
    "data.vectors.word_vectors": ["Vectors"],
    "attention.multi_head": ["Attention", "Mixer"],
    "models.block": ["Block"],
    "attention.bigbird": ["BlockSparseAttention"],
    "attention.longformer": ["GlobalAttention"],
    "models.heads.text": [
        "Head",
        "LanguageModel",
        "TokenClassifier",
        "Transform",
    ],
    "models.heads.sequence": ["SequenceClassifier"],
    "models.initialization": ["Initialization", "Glorot", "Normal", "T5Normal"],
    "attention.latent": ["LatentAttention"],
    "attention.linear": ["LinearAttention"],
    "attention.linformer": ["Linformer"],
    "attention.lsh": ["LSHAttention"],
    "attention.performer": ["Performer"],
    "models.placement": ["Placement", "DeepNorm", "Norms"],
    "models.replace": ["replace"],
    "models.stack": ["Stack"],
    "models.transformer": ["Transformer", "TransformerModel"],
    "models.heads.vision": ["ImageClassifier", "PixelDecoder", "MaskTokens", "Detector"],
    "families": ["preset"],
    "data.source": ["Source"],
    "tokenizers.tokenizer": ["Tokenizer"],
    "training.objective": ["Objective"],
    "generation.settings": ["Generation"],
    "directories.adapters": ["load_adapter", "save_adapter"],
    "directories.build": ["build"],
    "experiments.from_python": ["train"],
    "inference.run": ["load", "Run"],
    "recipes.recipe": ["Recipe"],
}
_NAMES = {name: f"qkv.{module}" for module, names in _HOME.items() for name in names}
_EXAMPLES = {"ring": "ring_attention", "pool": "attention_pooling", "KernelRegression": "attention_pooling"}
_REPLACED = {
    "Pooler": "qkv.SequenceClassifier(labels=None)",
    "Classifier": "qkv.SequenceClassifier(labels=…)",
}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name in _EXAMPLES:
        raise AttributeError(f"qkv.{name} is now an example: docs/examples/{_EXAMPLES[name]}.py")
    if name in _REPLACED:
        raise AttributeError(f"qkv.{name} is now {_REPLACED[name]}, the classification_head of a qkv.Transformer")
    if name not in _NAMES:
        raise AttributeError(f"module 'qkv' has no attribute {name!r}")
    value = getattr(importlib.import_module(_NAMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


if TYPE_CHECKING:
    from .attention.attend import attend, merge
    from .attention.bigbird import BlockSparseAttention
    from .attention.feature_maps import Elu1, Favor, FeatureMap, Relu
    from .attention.latent import LatentAttention
    from .attention.linear import LinearAttention
    from .attention.linformer import Linformer
    from .attention.longformer import GlobalAttention
    from .attention.lsh import LSHAttention
    from .attention.multi_head import Attention, Mixer
    from .attention.performer import Performer
    from .attention.scores import Additive, Concat, Dot, ExactMatch, Gaussian, General, ScaledDot, Score
    from .attention.tap import record, weights
    from .attention.weighting import Weighting
    from .core.batch import Batch, Term, Terms
    from .core.layout import Layout, Role
    from .core.spec import Cost, Spec
    from .data.source import Source
    from .directories.adapters import load_adapter, save_adapter
    from .directories.build import build
    from .experiments.from_python import train
    from .families import preset
    from .generation.settings import Generation
    from .inference.run import Run, load
    from .kv_cache.cache import Cache
    from .kv_cache.kinds import CacheKind, FullCache, H2OCache, PagedCache, QuantizedCache, SinkCache, SnapKVCache
    from .layers.embedding import Embedding
    from .layers.feedforward import FeedForward, FeedForwardLayer, NoFeedForward
    from .layers.lora import Adapter, LoRA, adapt, fold
    from .layers.moe import MixtureOfExperts
    from .layers.norm import LayerNorm, NoNorm, Norm, RMSNorm
    from .layers.patches import GridPosition, Patches, States, masked_layout
    from .models.block import Block
    from .models.heads.sequence import SequenceClassifier
    from .models.heads.text import Head, LanguageModel, TokenClassifier, Transform
    from .models.heads.vision import Detector, ImageClassifier, MaskTokens, PixelDecoder
    from .models.initialization import Glorot, Initialization, Normal, T5Normal
    from .models.placement import DeepNorm, Norms, Placement
    from .models.replace import replace
    from .models.stack import Stack
    from .models.transformer import Transformer, TransformerModel
    from .patterns.basic import (
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
    from .patterns.bigbird import BigBird
    from .positions.absolute import Learned, NoPosition, Sinusoidal
    from .positions.base import Position
    from .positions.bias import ALiBi, T5Buckets
    from .positions.rope_scaling import NTK, DynamicNTK, LinearScaling, Llama3Scaling, LongRoPE, Scaling, YaRN
    from .positions.rotary import Rotary
    from .positions.xpos import XPos
    from .recipes.recipe import Recipe
    from .tokenizers.tokenizer import Tokenizer
    from .training.objective import Objective
