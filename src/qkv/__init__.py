"""qkv: every Transformer from one small core.

Names are loaded when they are first used, so `import qkv` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "nn.attention.attend": ["attend", "merge"],
    "core.layout": ["Layout", "Role"],
    "nn.patterns.basic": [
        *["Pattern", "full", "causal", "window", "sinks", "prefix", "documents", "global_tokens", "media"],
        *["dilated", "strided", "fixed", "chunks", "blocks", "random_blocks", "neighborhood", "axial", "by_head"],
        *["grid_windows", "GridWindows"],
        *["Full", "Causal", "Window", "Sinks", "Prefix", "Documents", "Global", "Media", "Dilated", "Strided", "Fixed"],
        *["Chunks", "RandomBlocks", "Neighborhood", "Axial", "ByHead"],
    ],
    "nn.patterns.bigbird": ["BigBird"],
    "nn.layers.patches": ["Patches", "States", "GridPosition", "Projector", "masked_layout"],
    "nn.positions.base": ["Position"],
    "nn.positions.absolute": ["NoPosition", "Sinusoidal", "Learned"],
    "nn.positions.rotary": ["Rotary"],
    "nn.positions.xpos": ["XPos"],
    "nn.positions.axes": ["MultimodalRotary", "AxialRotary"],
    "nn.positions.bias": ["ALiBi", "T5Buckets"],
    "nn.positions.rope_scaling": ["Scaling", "LinearScaling", "NTK", "DynamicNTK", "YaRN", "Llama3Scaling", "LongRoPE"],
    "nn.layers.norm": ["Norm", "NoNorm", "LayerNorm", "RMSNorm"],
    "nn.layers.feedforward": ["FeedForwardLayer", "FeedForward", "NoFeedForward"],
    "nn.layers.moe": ["MixtureOfExperts"],
    "nn.layers.embedding": ["Embedding"],
    "nn.layers.lora": ["adapt", "Adapter", "LoRA", "fold"],
    "core.spec": ["Spec", "Cost"],
    "core.batch": ["Batch", "Term", "Terms"],
    "nn.kv_cache.cache": ["Cache"],
    "nn.kv_cache.kinds": [
        "CacheKind",
        "FullCache",
        "QuantizedCache",
        "SinkCache",
        "PagedCache",
        "H2OCache",
        "SnapKVCache",
    ],
    "nn.attention.feature_maps": ["FeatureMap", "Elu1", "Relu", "Favor"],
    "nn.attention.weighting": ["Weighting"],
    "nn.attention.scores": ["Score", "ScaledDot", "Dot", "General", "Additive", "Concat", "Gaussian", "ExactMatch"],
    "nn.attention.tap": ["record_attention", "weights"],
    "data.vectors.word_vectors": ["Vectors"],
    "nn.attention.mixer": ["Mixer"],
    "nn.attention.multi_head": ["Attention"],
    "nn.models.block": ["Block"],
    "nn.attention.bigbird": ["BlockSparseAttention"],
    "nn.attention.longformer": ["GlobalAttention"],
    "nn.models.heads.base": ["Head"],
    "nn.models.heads.language_model": ["LanguageModel", "Transform"],
    "nn.models.heads.text": ["TokenClassifier"],
    "nn.models.heads.sequence": ["SequenceClassifier"],
    "nn.models.initialization": ["Initialization", "Glorot", "Normal", "T5Normal"],
    "nn.attention.convolution": ["Convolution", "ByteNetConvolution"],
    "nn.attention.latent": ["LatentAttention"],
    "nn.attention.linear": ["LinearAttention"],
    "nn.attention.linformer": ["Linformer"],
    "nn.attention.lsh": ["LSHAttention"],
    "nn.attention.performer": ["Performer"],
    "nn.models.placement": ["Placement", "DeepNorm", "Norms"],
    "nn.models.replace": ["replace"],
    "nn.models.joint": ["Joint", "Medium", "Tower", "with_media"],
    "nn.models.stack": ["Stack"],
    "nn.models.transformer": ["Transformer", "TransformerModel"],
    "nn.models.heads.vision": ["ImageClassifier", "PixelDecoder", "MaskTokens", "Detector"],
    "io.families": ["preset"],
    "data.source": ["Source"],
    "data.tokenizers.tokenizer": ["Tokenizer"],
    "training.objective": ["Objective"],
    "generation.settings": ["Generation"],
    "io.directories.adapters": ["load_adapter", "save_adapter"],
    "io.directories.build": ["build"],
    "runs.train.from_python": ["train"],
    "lab.prune": ["prune"],
    "lab.quantize": ["quantize"],
    "runs.inference.run": ["from_pretrained", "load", "Run"],
    "runs.inference.ensemble": ["ensemble"],
    "runs.recipes.recipe": ["Recipe"],
    "learn.explain.of_run": ["explain"],
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
    from .core.batch import Batch as Batch
    from .core.batch import Term as Term
    from .core.batch import Terms as Terms
    from .core.layout import Layout as Layout
    from .core.layout import Role as Role
    from .core.spec import Cost as Cost
    from .core.spec import Spec as Spec
    from .data.source import Source as Source
    from .data.tokenizers.tokenizer import Tokenizer as Tokenizer
    from .data.vectors.word_vectors import Vectors as Vectors
    from .generation.settings import Generation as Generation
    from .io.directories.adapters import load_adapter as load_adapter
    from .io.directories.adapters import save_adapter as save_adapter
    from .io.directories.build import build as build
    from .io.families import preset as preset
    from .lab.prune import prune as prune
    from .lab.quantize import quantize as quantize
    from .learn.explain.of_run import explain as explain
    from .nn.attention.attend import attend as attend
    from .nn.attention.attend import merge as merge
    from .nn.attention.bigbird import BlockSparseAttention as BlockSparseAttention
    from .nn.attention.convolution import ByteNetConvolution as ByteNetConvolution
    from .nn.attention.convolution import Convolution as Convolution
    from .nn.attention.feature_maps import Elu1 as Elu1
    from .nn.attention.feature_maps import Favor as Favor
    from .nn.attention.feature_maps import FeatureMap as FeatureMap
    from .nn.attention.feature_maps import Relu as Relu
    from .nn.attention.latent import LatentAttention as LatentAttention
    from .nn.attention.linear import LinearAttention as LinearAttention
    from .nn.attention.linformer import Linformer as Linformer
    from .nn.attention.longformer import GlobalAttention as GlobalAttention
    from .nn.attention.lsh import LSHAttention as LSHAttention
    from .nn.attention.mixer import Mixer as Mixer
    from .nn.attention.multi_head import Attention as Attention
    from .nn.attention.performer import Performer as Performer
    from .nn.attention.scores import Additive as Additive
    from .nn.attention.scores import Concat as Concat
    from .nn.attention.scores import Dot as Dot
    from .nn.attention.scores import ExactMatch as ExactMatch
    from .nn.attention.scores import Gaussian as Gaussian
    from .nn.attention.scores import General as General
    from .nn.attention.scores import ScaledDot as ScaledDot
    from .nn.attention.scores import Score as Score
    from .nn.attention.tap import record_attention as record_attention
    from .nn.attention.tap import weights as weights
    from .nn.attention.weighting import Weighting as Weighting
    from .nn.kv_cache.cache import Cache as Cache
    from .nn.kv_cache.kinds import CacheKind as CacheKind
    from .nn.kv_cache.kinds import FullCache as FullCache
    from .nn.kv_cache.kinds import H2OCache as H2OCache
    from .nn.kv_cache.kinds import PagedCache as PagedCache
    from .nn.kv_cache.kinds import QuantizedCache as QuantizedCache
    from .nn.kv_cache.kinds import SinkCache as SinkCache
    from .nn.kv_cache.kinds import SnapKVCache as SnapKVCache
    from .nn.layers.embedding import Embedding as Embedding
    from .nn.layers.feedforward import FeedForward as FeedForward
    from .nn.layers.feedforward import FeedForwardLayer as FeedForwardLayer
    from .nn.layers.feedforward import NoFeedForward as NoFeedForward
    from .nn.layers.lora import Adapter as Adapter
    from .nn.layers.lora import LoRA as LoRA
    from .nn.layers.lora import adapt as adapt
    from .nn.layers.lora import fold as fold
    from .nn.layers.moe import MixtureOfExperts as MixtureOfExperts
    from .nn.layers.norm import LayerNorm as LayerNorm
    from .nn.layers.norm import NoNorm as NoNorm
    from .nn.layers.norm import Norm as Norm
    from .nn.layers.norm import RMSNorm as RMSNorm
    from .nn.layers.patches import GridPosition as GridPosition
    from .nn.layers.patches import Patches as Patches
    from .nn.layers.patches import Projector as Projector
    from .nn.layers.patches import States as States
    from .nn.layers.patches import masked_layout as masked_layout
    from .nn.models.block import Block as Block
    from .nn.models.heads.base import Head as Head
    from .nn.models.heads.language_model import LanguageModel as LanguageModel
    from .nn.models.heads.language_model import Transform as Transform
    from .nn.models.heads.sequence import SequenceClassifier as SequenceClassifier
    from .nn.models.heads.text import TokenClassifier as TokenClassifier
    from .nn.models.heads.vision import Detector as Detector
    from .nn.models.heads.vision import ImageClassifier as ImageClassifier
    from .nn.models.heads.vision import MaskTokens as MaskTokens
    from .nn.models.heads.vision import PixelDecoder as PixelDecoder
    from .nn.models.initialization import Glorot as Glorot
    from .nn.models.initialization import Initialization as Initialization
    from .nn.models.initialization import Normal as Normal
    from .nn.models.initialization import T5Normal as T5Normal
    from .nn.models.joint import Joint as Joint
    from .nn.models.joint import Medium as Medium
    from .nn.models.joint import Tower as Tower
    from .nn.models.joint import with_media as with_media
    from .nn.models.placement import DeepNorm as DeepNorm
    from .nn.models.placement import Norms as Norms
    from .nn.models.placement import Placement as Placement
    from .nn.models.replace import replace as replace
    from .nn.models.stack import Stack as Stack
    from .nn.models.transformer import Transformer as Transformer
    from .nn.models.transformer import TransformerModel as TransformerModel
    from .nn.patterns.basic import Axial as Axial
    from .nn.patterns.basic import ByHead as ByHead
    from .nn.patterns.basic import Causal as Causal
    from .nn.patterns.basic import Chunks as Chunks
    from .nn.patterns.basic import Dilated as Dilated
    from .nn.patterns.basic import Documents as Documents
    from .nn.patterns.basic import Fixed as Fixed
    from .nn.patterns.basic import Full as Full
    from .nn.patterns.basic import Global as Global
    from .nn.patterns.basic import GridWindows as GridWindows
    from .nn.patterns.basic import Media as Media
    from .nn.patterns.basic import Neighborhood as Neighborhood
    from .nn.patterns.basic import Pattern as Pattern
    from .nn.patterns.basic import Prefix as Prefix
    from .nn.patterns.basic import RandomBlocks as RandomBlocks
    from .nn.patterns.basic import Sinks as Sinks
    from .nn.patterns.basic import Strided as Strided
    from .nn.patterns.basic import Window as Window
    from .nn.patterns.basic import axial as axial
    from .nn.patterns.basic import blocks as blocks
    from .nn.patterns.basic import by_head as by_head
    from .nn.patterns.basic import causal as causal
    from .nn.patterns.basic import chunks as chunks
    from .nn.patterns.basic import dilated as dilated
    from .nn.patterns.basic import documents as documents
    from .nn.patterns.basic import fixed as fixed
    from .nn.patterns.basic import full as full
    from .nn.patterns.basic import global_tokens as global_tokens
    from .nn.patterns.basic import grid_windows as grid_windows
    from .nn.patterns.basic import media as media
    from .nn.patterns.basic import neighborhood as neighborhood
    from .nn.patterns.basic import prefix as prefix
    from .nn.patterns.basic import random_blocks as random_blocks
    from .nn.patterns.basic import sinks as sinks
    from .nn.patterns.basic import strided as strided
    from .nn.patterns.basic import window as window
    from .nn.patterns.bigbird import BigBird as BigBird
    from .nn.positions.absolute import Learned as Learned
    from .nn.positions.absolute import NoPosition as NoPosition
    from .nn.positions.absolute import Sinusoidal as Sinusoidal
    from .nn.positions.axes import AxialRotary as AxialRotary
    from .nn.positions.axes import MultimodalRotary as MultimodalRotary
    from .nn.positions.base import Position as Position
    from .nn.positions.bias import ALiBi as ALiBi
    from .nn.positions.bias import T5Buckets as T5Buckets
    from .nn.positions.rope_scaling import NTK as NTK
    from .nn.positions.rope_scaling import DynamicNTK as DynamicNTK
    from .nn.positions.rope_scaling import LinearScaling as LinearScaling
    from .nn.positions.rope_scaling import Llama3Scaling as Llama3Scaling
    from .nn.positions.rope_scaling import LongRoPE as LongRoPE
    from .nn.positions.rope_scaling import Scaling as Scaling
    from .nn.positions.rope_scaling import YaRN as YaRN
    from .nn.positions.rotary import Rotary as Rotary
    from .nn.positions.xpos import XPos as XPos
    from .runs.inference.ensemble import ensemble as ensemble
    from .runs.inference.run import Run as Run
    from .runs.inference.run import from_pretrained as from_pretrained
    from .runs.inference.run import load as load
    from .runs.recipes.recipe import Recipe as Recipe
    from .runs.train.from_python import train as train
    from .training.objective import Objective as Objective
