"""Metadata of single families: shapes of heads and sublayers, ALiBi, layers without positions, Gemma's two rotary bases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....core.spec import brief
from .keys import TENSORS, Config, Heads, Metadata
from .rope import RopeKeys


@dataclass(frozen=True)
class BigCodeHeads:
    """`multi_query`: all heads share one key and value, or none do."""

    def write(self, config: Config) -> Metadata:
        shared = config["multi_query"]
        return {"attention.head_count": config["n_head"], "attention.head_count_kv": 1 if shared else config["n_head"]}

    def read(self, metadata: Config) -> dict[str, Any]:
        heads = Heads("n_head", "n_kv", "n_embd", None).read(metadata)
        if heads["n_kv"] not in (1, heads["n_head"]):
            raise ValueError(
                f"attention.head_count_kv is {brief(heads['n_kv'])}; it is 1 or all {heads['n_head']} heads"
            )
        return {"n_head": heads["n_head"], "multi_query": heads["n_kv"] == 1}


@dataclass(frozen=True)
class FalconShape:
    """Heads and branches: with several key-value heads, or a second norm, Falcon's new architecture."""

    def write(self, config: Config) -> Metadata:
        for key, fine in (("bias", False), ("alibi", False), ("parallel_attn", True)):
            if config.get(key, fine) != fine:
                raise ValueError(
                    "llama.cpp's falcon has rotary positions, no biases, and its sublayers side by side, and this model has "
                    f"{key}={config[key]}"
                )
        return {
            "attention.head_count": config["num_attention_heads"],
            "attention.head_count_kv": config["num_kv_heads"],
            "tensor_data_layout": "jploski",
        }

    def read(self, metadata: Config) -> dict[str, Any]:
        heads = Heads(kv_heads="num_kv_heads", head_dim=None).read(metadata)
        two = "blk.0.attn_norm_2.weight" in metadata[TENSORS]
        count = heads["num_kv_heads"]
        new = two or count not in (1, heads["num_attention_heads"])
        return heads | {
            "multi_query": count == 1,
            "new_decoder_architecture": new,
            "num_ln_in_parallel_attn": 2 if two else 1,
            "bias": False,
            "parallel_attn": True,
            "alibi": False,
        }


@dataclass(frozen=True)
class FourTimes:
    """The width of feed-forward layers, for which the family has no key: four times the model's."""

    width: str

    def write(self, config: Config) -> Metadata:
        return {"feed_forward_length": 4 * config[self.width]}

    def read(self, metadata: Config) -> dict[str, Any]:
        wide, inner = metadata.get("embedding_length"), metadata.get("feed_forward_length")
        if type(wide) is int and inner not in (None, 4 * wide):
            raise ValueError(f"feed_forward_length is {brief(inner)}, and four times the width of {wide} is built here")
        return {}


@dataclass(frozen=True)
class MPTAttention:
    """`attn_config`: ALiBi's largest slope; the scale of scores is the usual one."""

    def write(self, config: Config) -> Metadata:
        inside = config["attn_config"]
        if inside.get("softmax_scale") is not None:
            raise ValueError(
                f"llama.cpp's mpt divides scores by √d, and this model has softmax_scale={inside['softmax_scale']}"
            )
        return {"attention.max_alibi_bias": float(inside["alibi_bias_max"])}

    def read(self, metadata: Config) -> dict[str, Any]:
        most = metadata.get("attention.max_alibi_bias", 0.0)
        if not most or metadata.get("attention.clamp_kqv"):
            raise ValueError("MPT without ALiBi, or with clamped queries, keys and values, is not built here")
        return {"attn_config": {"alibi": True, "alibi_bias_max": int(most) if most == int(most) else most}}


@dataclass(frozen=True)
class GGUFUnrotated:
    """SmolLM3's layers without positions: every fourth."""

    step: int = 4

    def _usual(self, n_layers: int) -> list[int]:
        return [int((i + 1) % self.step != 0) for i in range(n_layers)]

    def write(self, config: Config) -> Metadata:
        rotated = list(config["no_rope_layers"])
        if rotated != self._usual(len(rotated)):
            raise ValueError(
                f"llama.cpp's smollm3 leaves out positions in every {self.step}th layer, and this model's "
                f"no_rope_layers are {brief(rotated)}"
            )
        return {}

    def read(self, metadata: Config) -> dict[str, Any]:
        layers = metadata.get("block_count")
        if type(layers) is not int or not 0 < layers <= 1 << 16:
            raise ValueError(f"block_count must be a number of layers, not {brief(layers)}")
        return {"no_rope_layers": self._usual(layers)}


@dataclass(frozen=True)
class QueryWidth:
    """Gemma's `query_pre_attn_scalar`: the width of heads, but in the 27 B model, which llama.cpp knows by its layers."""

    layers_of_27b: int

    def _usual(self, config: Config) -> int:
        by_width = config["num_hidden_layers"] == self.layers_of_27b
        return int(config["hidden_size"] // config["num_attention_heads"] if by_width else config["head_dim"])

    def write(self, config: Config) -> Metadata:
        if config["query_pre_attn_scalar"] != self._usual(config):
            raise ValueError(
                f"llama.cpp's Gemma divides scores by √{self._usual(config)}, the root of the width of a head, and this "
                f"model by √{config['query_pre_attn_scalar']} (query_pre_attn_scalar)"
            )
        return {}

    def read(self, metadata: Config) -> dict[str, Any]:
        sizes: dict[str, Any] = Heads().read(metadata)
        sizes |= {"num_hidden_layers": metadata.get("block_count"), "hidden_size": metadata.get("embedding_length")}
        return {"query_pre_attn_scalar": self._usual(sizes)}


@dataclass(frozen=True)
class GemmaRopes:
    """Gemma 3's two bases: of layers with full attention, and of layers with a window."""

    def write(self, config: Config) -> Metadata:
        ropes = config["rope_parameters"]
        local = ropes["sliding_attention"]
        if local.get("rope_type", "default") != "default" or "partial_rotary_factor" in local:
            raise ValueError(
                f"llama.cpp's gemma3 scales no positions of layers with a window, and this model does: {brief(dict(local))}"
            )
        full = RopeKeys().write({**config, "rope_parameters": ropes["full_attention"]})
        return full | {"rope.freq_base_swa": float(local["rope_theta"])}

    def read(self, metadata: Config) -> dict[str, Any]:
        full = RopeKeys(usual=1e6).read(metadata)["rope_parameters"]
        local = {"rope_theta": metadata.get("rope.freq_base_swa", 10000.0), "rope_type": "default"}
        return {"rope_parameters": {"full_attention": full, "sliding_attention": local}}
