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
    "attention.tap": ["record_attention", "weights"],
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
    "attention.convolution": ["Convolution", "ByteNetConvolution"],
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
    "experiments.prune": ["prune"],
    "experiments.quantize": ["quantize"],
    "inference.run": ["load", "Run"],
    "recipes.recipe": ["Recipe"],
}
_NAMES = {name: f"qkv.{module}" for module, names in _HOME.items() for name in names}
_EXAMPLES = {"ring": "ring_attention", "pool": "attention_pooling", "KernelRegression": "attention_pooling"}

__all__ = sorted(_NAMES)


if not TYPE_CHECKING:  # where checkers see it, they take every misspelt name for one of ours

    def __getattr__(name: str) -> Any:
        if name in _EXAMPLES:
            raise AttributeError(f"qkv.{name} is now an example: docs/examples/{_EXAMPLES[name]}.py")
        if name not in _NAMES:
            raise AttributeError(f"module 'qkv' has no attribute {name!r}")
        value = getattr(importlib.import_module(_NAMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


if TYPE_CHECKING:  # `as` marks a name as exported
    from .attention.attend import attend as attend
    from .attention.attend import merge as merge
    from .attention.bigbird import BlockSparseAttention as BlockSparseAttention
    from .attention.convolution import ByteNetConvolution as ByteNetConvolution
    from .attention.convolution import Convolution as Convolution
    from .attention.feature_maps import Elu1 as Elu1
    from .attention.feature_maps import Favor as Favor
    from .attention.feature_maps import FeatureMap as FeatureMap
    from .attention.feature_maps import Relu as Relu
    from .attention.latent import LatentAttention as LatentAttention
    from .attention.linear import LinearAttention as LinearAttention
    from .attention.linformer import Linformer as Linformer
    from .attention.longformer import GlobalAttention as GlobalAttention
    from .attention.lsh import LSHAttention as LSHAttention
    from .attention.multi_head import Attention as Attention
    from .attention.multi_head import Mixer as Mixer
    from .attention.performer import Performer as Performer
    from .attention.scores import Additive as Additive
    from .attention.scores import Concat as Concat
    from .attention.scores import Dot as Dot
    from .attention.scores import ExactMatch as ExactMatch
    from .attention.scores import Gaussian as Gaussian
    from .attention.scores import General as General
    from .attention.scores import ScaledDot as ScaledDot
    from .attention.scores import Score as Score
    from .attention.tap import record_attention as record_attention
    from .attention.tap import weights as weights
    from .attention.weighting import Weighting as Weighting
    from .core.batch import Batch as Batch
    from .core.batch import Term as Term
    from .core.batch import Terms as Terms
    from .core.layout import Layout as Layout
    from .core.layout import Role as Role
    from .core.spec import Cost as Cost
    from .core.spec import Spec as Spec
    from .data.source import Source as Source
    from .data.vectors.word_vectors import Vectors as Vectors
    from .directories.adapters import load_adapter as load_adapter
    from .directories.adapters import save_adapter as save_adapter
    from .directories.build import build as build
    from .experiments.from_python import train as train
    from .experiments.prune import prune as prune
    from .experiments.quantize import quantize as quantize
    from .families import preset as preset
    from .generation.settings import Generation as Generation
    from .inference.run import Run as Run
    from .inference.run import load as load
    from .kv_cache.cache import Cache as Cache
    from .kv_cache.kinds import CacheKind as CacheKind
    from .kv_cache.kinds import FullCache as FullCache
    from .kv_cache.kinds import H2OCache as H2OCache
    from .kv_cache.kinds import PagedCache as PagedCache
    from .kv_cache.kinds import QuantizedCache as QuantizedCache
    from .kv_cache.kinds import SinkCache as SinkCache
    from .kv_cache.kinds import SnapKVCache as SnapKVCache
    from .layers.embedding import Embedding as Embedding
    from .layers.feedforward import FeedForward as FeedForward
    from .layers.feedforward import FeedForwardLayer as FeedForwardLayer
    from .layers.feedforward import NoFeedForward as NoFeedForward
    from .layers.lora import Adapter as Adapter
    from .layers.lora import LoRA as LoRA
    from .layers.lora import adapt as adapt
    from .layers.lora import fold as fold
    from .layers.moe import MixtureOfExperts as MixtureOfExperts
    from .layers.norm import LayerNorm as LayerNorm
    from .layers.norm import NoNorm as NoNorm
    from .layers.norm import Norm as Norm
    from .layers.norm import RMSNorm as RMSNorm
    from .layers.patches import GridPosition as GridPosition
    from .layers.patches import Patches as Patches
    from .layers.patches import States as States
    from .layers.patches import masked_layout as masked_layout
    from .models.block import Block as Block
    from .models.heads.sequence import SequenceClassifier as SequenceClassifier
    from .models.heads.text import Head as Head
    from .models.heads.text import LanguageModel as LanguageModel
    from .models.heads.text import TokenClassifier as TokenClassifier
    from .models.heads.text import Transform as Transform
    from .models.heads.vision import Detector as Detector
    from .models.heads.vision import ImageClassifier as ImageClassifier
    from .models.heads.vision import MaskTokens as MaskTokens
    from .models.heads.vision import PixelDecoder as PixelDecoder
    from .models.initialization import Glorot as Glorot
    from .models.initialization import Initialization as Initialization
    from .models.initialization import Normal as Normal
    from .models.initialization import T5Normal as T5Normal
    from .models.placement import DeepNorm as DeepNorm
    from .models.placement import Norms as Norms
    from .models.placement import Placement as Placement
    from .models.replace import replace as replace
    from .models.stack import Stack as Stack
    from .models.transformer import Transformer as Transformer
    from .models.transformer import TransformerModel as TransformerModel
    from .patterns.basic import Axial as Axial
    from .patterns.basic import ByHead as ByHead
    from .patterns.basic import Causal as Causal
    from .patterns.basic import Chunks as Chunks
    from .patterns.basic import Dilated as Dilated
    from .patterns.basic import Documents as Documents
    from .patterns.basic import Fixed as Fixed
    from .patterns.basic import Full as Full
    from .patterns.basic import Global as Global
    from .patterns.basic import Neighborhood as Neighborhood
    from .patterns.basic import Pattern as Pattern
    from .patterns.basic import Prefix as Prefix
    from .patterns.basic import RandomBlocks as RandomBlocks
    from .patterns.basic import Sinks as Sinks
    from .patterns.basic import Strided as Strided
    from .patterns.basic import Window as Window
    from .patterns.basic import axial as axial
    from .patterns.basic import blocks as blocks
    from .patterns.basic import by_head as by_head
    from .patterns.basic import causal as causal
    from .patterns.basic import chunks as chunks
    from .patterns.basic import dilated as dilated
    from .patterns.basic import documents as documents
    from .patterns.basic import fixed as fixed
    from .patterns.basic import full as full
    from .patterns.basic import global_tokens as global_tokens
    from .patterns.basic import neighborhood as neighborhood
    from .patterns.basic import prefix as prefix
    from .patterns.basic import random_blocks as random_blocks
    from .patterns.basic import sinks as sinks
    from .patterns.basic import strided as strided
    from .patterns.basic import window as window
    from .patterns.bigbird import BigBird as BigBird
    from .positions.absolute import Learned as Learned
    from .positions.absolute import NoPosition as NoPosition
    from .positions.absolute import Sinusoidal as Sinusoidal
    from .positions.base import Position as Position
    from .positions.bias import ALiBi as ALiBi
    from .positions.bias import T5Buckets as T5Buckets
    from .positions.rope_scaling import NTK as NTK
    from .positions.rope_scaling import DynamicNTK as DynamicNTK
    from .positions.rope_scaling import LinearScaling as LinearScaling
    from .positions.rope_scaling import Llama3Scaling as Llama3Scaling
    from .positions.rope_scaling import LongRoPE as LongRoPE
    from .positions.rope_scaling import Scaling as Scaling
    from .positions.rope_scaling import YaRN as YaRN
    from .positions.rotary import Rotary as Rotary
    from .positions.xpos import XPos as XPos
    from .recipes.recipe import Recipe as Recipe
    from .tokenizers.tokenizer import Tokenizer as Tokenizer
    from .training.objective import Objective as Objective
