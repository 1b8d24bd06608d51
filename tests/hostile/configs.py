"""Hostile `config.json`s of the Hub: every family's configuration, with values that it should not have.

`mutants(seed, n)` gives them, `check` says what is wrong with how one is met: None, or a sentence. A configuration is to
become a spec, or a ValueError that names a key which was changed.
"""

from __future__ import annotations

import copy
import json
import random
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from qkv.io.families import FAMILIES
from qkv.io.hub.keys import BOOKKEEPING

SECONDS = 2.0  # of CPU time for one configuration, so a busy machine does not count; a healthy one takes milliseconds

SMALL: dict[str, Any] = {
    "text_config": {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2},
    "vision_config": {"image_size": 8, "patch_size": 2, "hidden_size": 8, "num_attention_heads": 2},
    **dict.fromkeys(("d_model", "hidden_size", "n_embd", "dim"), 32),
    **dict.fromkeys(("d_ff", "intermediate_size", "n_inner", "hidden_dim", "ffn_hidden_size"), 48),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "moe_intermediate_size", "decoder_intermediate_size"), 40),
    **dict.fromkeys(("n_layers", "n_layer", "num_hidden_layers", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("n_heads", "n_head", "num_heads", "num_attention_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "decoder_num_attention_heads"), 4),
    **dict.fromkeys(("num_decoder_layers", "decoder_num_hidden_layers"), 1),
    "num_key_value_heads": 2,
    "rotary_dim": 4,
    "num_kv_heads": 2,
    "head_dim": 8,
    "d_kv": 8,
    "decoder_hidden_size": 16,
    "vocab_size": 97,
    "max_position_embeddings": 64,
    "n_positions": 64,
    "max_seq_len": 64,
    "block_size": 4,
    "image_size": [32, 48],
    "patch_size": 16,
    "num_experts": 4,
    "num_local_experts": 4,
    "embedding_size": 16,
    "shared_expert_intermediate_size": 24,
    "num_experts_per_tok": 2,
    "sliding_window": 8,
    "mlp_only_layers": [1],
    "layer_types": ["full_attention", "sliding_attention"],
    "use_sliding_window": True,
    "max_window_layers": 1,
    "attention_window": [4, 8],
    "attn_config": {"attn_pdrop": 0.1, "softmax_scale": 0.5, "alibi_bias_max": 8},
    "id2label": {"0": "a", "1": "b", "2": "c"},
    "label2id": {"a": 0, "b": 1, "c": 2},
    "num_labels": 3,
    "num_detection_tokens": 5,
    "num_patches": 16,
}
_OF_QWEN = {
    "depth": 2,
    "num_heads": 2,
    "patch_size": 2,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "in_channels": 3,
}
QWEN_VISION: dict[str, dict[str, Any]] = {
    "qwen2_vl": {**_OF_QWEN, "embed_dim": 16, "hidden_size": 16, "mlp_ratio": 2},
    "qwen2_5_vl": {**_OF_QWEN, "hidden_size": 16, "out_hidden_size": 16, "intermediate_size": 24, "window_size": 8},
    "qwen3_vl": {
        **_OF_QWEN,
        "hidden_size": 16,
        "out_hidden_size": 16,
        "intermediate_size": 24,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0],
    },
}
QWEN_VISION["qwen3_vl_moe"] = QWEN_VISION["qwen3_vl"]
LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1000.0, "partial_rotary_factor": 1.0}
YARN = {**LINEAR, "rope_type": "yarn", "original_max_position_embeddings": 16, "beta_fast": 8.0, "beta_slow": 1.0}
LONG = {"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "rope_theta": 1000.0}
BENDS = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
ROPES = (LINEAR, YARN, LONG, {**LINEAR, "rope_type": "llama3", **BENDS}, {**LINEAR, "rope_type": "dynamic"})

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 33, 10_000, 10**6, 10**9, 2**31, 2**63, 10**30, -(2**63)),
    *(0.0, 0.5, 1.0, -0.5, 32.0, 1e-320, 1e308, float("nan"), float("inf"), float("-inf")),
    *("", "x", "32", "true", "gelu", "\x1b[31m", "../x", "é\ud800", "a" * 100_000),
    *([], [1], [0, 0], [-1, 4], [None], ["x"], [[[]]], [1.5, 2], [1] * 100_000, {}, {"a": 1}, {"type": {}}, [{}]),
    *({"rope_type": "linear"}, {"rope_type": ["yarn"], "factor": 2}, {str(i): "x" for i in range(100_000)}),
)


@dataclass(frozen=True)
class Mutant:
    """A family's configuration with what was changed in it: the top-level keys."""

    family: str
    config: dict[str, Any]
    changed: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.family}: " + ", ".join(f"{key}={self.config.get(key, '(gone)')!r:.80}" for key in self.changed)


def base(name: str, rope: dict[str, Any] | None = None) -> dict[str, Any]:
    """A small configuration of a family that says every key."""
    family = FAMILIES[name]
    config: dict[str, Any] = {"model_type": name, "architectures": [next(iter(family.classes))]}
    for field in (*family.fields, family.labels):
        for key, usual in field.keys.items():
            value = SMALL.get(key, usual)
            if value is not None:
                config[key] = copy.deepcopy(list(value) if isinstance(value, tuple) else value)
        spellings = getattr(field, "also", ())
        for other in spellings:
            config.pop(other, None)
    for key in ("label2id", "num_labels") if "num_labels" not in config else ():
        config.setdefault(key, SMALL[key])
    if name in ("clip_vision_model", "siglip_vision_model"):
        config["image_size"] = 32
    if name in ("clip", "siglip", "siglip2"):
        config["text_config"] |= {"eos_token_id": 3} if name == "clip" else {"projection_size": 8}
    if name == "siglip2":
        del config["vision_config"]["image_size"]
    if name in ("paligemma", "gemma3", *QWEN_VISION):
        config["text_config"] |= {"num_key_value_heads": 1} | ({} if "qwen2" in name else {"head_dim": 8})
        config |= {"paligemma": {"projection_dim": 16}, "gemma3": {"mm_tokens_per_image": 4}}.get(name, {})
        config["vision_config"] = copy.deepcopy(QWEN_VISION.get(name, config["vision_config"]))
    if name == "gpt_neox":
        config["rotary_pct"] = 0.5
    if name == "falcon":
        config["new_decoder_architecture"] = True
    if rope is not None and "rope_scaling" in {key for field in family.fields for key in field.keys}:
        rope, by_layer = copy.deepcopy(rope), name in ("gemma3_text", "modernbert", "olmo3")
        if by_layer and "type" in rope:  # transformers adds the rest to rope_type=default
            rope["rope_type"] = rope.pop("type")
        if name == "ministral3":  # whose queries grow
            rope |= {"llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 16}
        config["rope_parameters" if "rope_type" in rope else "rope_scaling"] = rope
        if by_layer and "rope_parameters" in config:  # as transformers writes it: one for each kind of layer
            local = {"rope_type": "default", "rope_theta": 1000.0}
            config["rope_parameters"] = {"full_attention": config["rope_parameters"], "sliding_attention": local}
    return config


def mutants(seed: int, n: int) -> Iterator[Mutant]:
    """`n` configurations, each with one value changed, or sometimes two or three; families take turns."""
    draw = random.Random(seed)
    names = list(FAMILIES)
    for i in range(n):
        name = names[i % len(names)]
        config = base(name, draw.choice((None, *ROPES)))
        changed = tuple(_mutate(config, draw) for _ in range(draw.choice((1, 1, 1, 2, 3))))
        yield Mutant(name, config, changed)


def _mutate(config: dict[str, Any], draw: random.Random) -> str:
    """Change one value, at the top or inside of an object or a list; the top-level key is given back."""
    what = draw.random()
    if what < 0.06:
        key = draw.choice(("quantization_config", "pruned_heads", "is_decoder", *BOOKKEEPING, "anything at all"))
        config[key] = _fresh(draw.choice(VALUES))
        return key
    key = draw.choice(list(config))
    value = config[key]
    if what < 0.12:
        del config[key]
    elif what < 0.4 and isinstance(value, dict | list) and value:
        inside = draw.choice(list(value)) if isinstance(value, dict) else draw.randrange(len(value))
        value[inside] = _fresh(draw.choice(VALUES))  # type: ignore[index]
    elif what < 0.5:
        config[key] = draw.choice((str(value), [value], {"value": value}, {key: value}))
    else:
        config[key] = _fresh(draw.choice(VALUES))
    return key


def _fresh(value: Any) -> Any:
    """A copy that can be mutated; the long values hold no other containers, and a deep copy of them takes long."""
    return copy.copy(value) if isinstance(value, list | dict) and len(value) > 1000 else copy.deepcopy(value)


def check(mutant: Mutant, seconds: float = SECONDS) -> str | None:
    """What is wrong with how a configuration is met, or None: every class of its family is tried."""
    from qkv.io.hub.family import Family

    began = time.process_time()
    family: Family = FAMILIES[mutant.family]
    config = json.loads(json.dumps(mutant.config))  # as it comes out of a file
    try:
        for cls in (None, *family.classes):
            family.spec(config, cls)
    except ValueError as error:
        said = str(error)
        if not any(key in said for key in mutant.changed):
            return f"{mutant}: the message names no key that was changed: {said[:300]}"
        if len(said) > 4000:
            return f"{mutant}: a message of {len(said):,} characters"
    except Exception:
        return f"{mutant}: {traceback.format_exc(limit=-3)}"
    took = time.process_time() - began
    return f"{mutant}: {took:.1f} s of CPU time" if took > seconds else None


def stored(name: str, folder: Path) -> dict[str, Any]:
    """A directory with a small model of a family; its configuration says every key."""
    from qkv.io.directories import hub_save
    from qkv.io.directories.build import build
    from qkv.io.directories.sharded import write

    config = base(name)
    model = build(FAMILIES[name].spec(config)).eval()
    folder.mkdir(parents=True, exist_ok=True)
    write(
        folder, hub_save.names_of(model, config), {key: tensor.detach() for key, tensor in model.state_dict().items()}
    )
    (folder / "config.json").write_text(json.dumps(config))
    return config


def check_stored(mutant: Mutant, folder: Path, seconds: float = 10.0) -> str | None:
    """What is wrong with how a directory is met whose configuration is a mutant's: it is a model, or a ValueError.

    `folder` is where `stored` wrote the family's model.
    """
    from qkv.io.directories import hub_load

    (folder / "config.json").write_text(json.dumps(mutant.config))
    began = time.process_time()
    try:
        hub_load.check(folder).load(torch.device("cpu"))
    except ValueError as error:
        if len(str(error)) > 4000:
            return f"{mutant}: a message of {len(str(error)):,} characters"
    except Exception:
        return f"{mutant}: {traceback.format_exc(limit=-3)}"
    took = time.process_time() - began
    return f"{mutant}: {took:.1f} s of CPU time" if took > seconds else None
