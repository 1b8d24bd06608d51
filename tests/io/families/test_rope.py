"""Rotary parameters of a configuration, wherever they stand: what transformers computes with them, or a refusal."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from hub_cases import transformers
from hub_sizes import GEMMA, GROUPED, MODERN, SIZES

import qkv
from qkv.nn.positions.rotary import Rotary

ROTARY: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", GROUPED),
    "mistral": ("MistralForCausalLM", GROUPED),
    "qwen2": ("Qwen2ForCausalLM", GROUPED),
    "qwen3": ("Qwen3ForCausalLM", {**GROUPED, "head_dim": 8}),
    "gemma2": ("Gemma2ForCausalLM", GEMMA),
    "olmo2": ("Olmo2ForCausalLM", GROUPED),
    "granite": ("GraniteForCausalLM", GROUPED),
    "smollm3": ("SmolLM3ForCausalLM", {**GROUPED, "pad_token_id": 0}),
    "phi3": ("Phi3ForCausalLM", {**GROUPED, "pad_token_id": 0}),
    "mixtral": ("MixtralForCausalLM", {**GROUPED, "head_dim": 8, "num_local_experts": 4}),
    "gpt_neox": ("GPTNeoXForCausalLM", {**SIZES, "rotary_pct": 1.0}),
    "falcon": ("FalconForCausalLM", {key: value for key, value in SIZES.items() if key != "intermediate_size"}),
    "gemma3_text": ("Gemma3ForCausalLM", GEMMA),
    "modernbert": ("ModernBertForMaskedLM", MODERN),
}
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 500.0, "original_max_position_embeddings": 10}
LINEAR = {"rope_type": "linear", "factor": 3.0}
PARAMETERS: dict[str, dict[str, Any]] = {
    "theta beside": {"rope_theta": 777.0},
    "theta in both": {"rope_theta": 55.0, "rope_parameters": {"rope_type": "default", "rope_theta": 777.0}},
    "fraction inside": {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}},
    "fraction beside": {"partial_rotary_factor": 0.5},
    "fraction in old": {"rope_theta": 100.0, "rope_scaling": {"rope_type": "default", "partial_rotary_factor": 0.5}},
    "new and old": {"rope_parameters": {**LINEAR, "rope_theta": 777.0}, "rope_scaling": {**LINEAR, "factor": 9.0}},
    "default and old": {"rope_parameters": {"rope_type": "default", "rope_theta": 777.0}, "rope_scaling": LINEAR},
    "dynamic, other context": {
        "original_max_position_embeddings": 8,
        "rope_parameters": {"rope_type": "dynamic", "factor": 3.0, "rope_theta": 777.0},
    },
    "yarn": {"rope_parameters": YARN},
    "yarn, other context": {"original_max_position_embeddings": 8, "rope_parameters": YARN},
    "yarn by contexts": {"rope_parameters": {**YARN, "factor": None}},
}
LAYERS: dict[str, dict[str, Any]] = {
    "fraction of some": {
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10.0},
        }
    },
    "old scaling": {"rope_scaling": LINEAR},
    "one of two": {"rope_parameters": {"full_attention": {**LINEAR, "rope_theta": 100.0}}},
}


def written(folder: Path, model_type: str, parameters: dict[str, Any]) -> Any:
    """Their random model, in a directory whose configuration has these parameters as they are spelled here."""
    cls, sizes = ROTARY[model_type]
    torch.manual_seed(3)
    model = getattr(transformers, cls)(getattr(transformers, cls).config_class(**sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)
    config = {"architectures": [cls], "model_type": model_type, **sizes, **parameters}
    (folder / "config.json").write_text(json.dumps(config))
    return getattr(transformers, cls)


def differ(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm())


@torch.no_grad()
def compare(folder: Path, model_type: str, parameters: dict[str, Any]) -> None:
    """Ours computes what theirs does or refuses; what ours saves, theirs computes."""
    cls = written(folder, model_type, parameters)
    ids = torch.randint(6, 90, (2, 24), generator=torch.Generator().manual_seed(0))
    load = lambda at: cls.from_pretrained(at, attn_implementation="eager").eval()(ids).logits  # noqa: E731
    try:
        theirs = load(folder)
    except Exception as error:  # of many kinds
        pytest.skip(f"transformers refuses it: {type(error).__name__}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ours = qkv.load(folder, device="cpu").model
        except ValueError:
            return
        assert differ(ours(ids), theirs) < 1e-5
        ours.save(folder / "saved", to="hub")
    saved = transformers.AutoModelForMaskedLM if model_type == "modernbert" else transformers.AutoModelForCausalLM
    again = saved.from_pretrained(folder / "saved", attn_implementation="eager").eval()(ids).logits
    assert differ(ours(ids), again) < 1e-5


@pytest.mark.parametrize("name", ["new and old", "default and old", "dynamic, other context", "yarn by contexts"])
def test_rotary_parameters_mean_what_they_mean_in_transformers(name: str, tmp_path: Path) -> None:
    compare(tmp_path, "llama", PARAMETERS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("model_type", [name for name in ROTARY if name not in ("gemma3_text", "modernbert")])
def test_rotary_parameters_mean_the_same_in_every_family(model_type: str, name: str, tmp_path: Path) -> None:
    compare(tmp_path, model_type, PARAMETERS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["theta beside", "fraction beside", *LAYERS])
@pytest.mark.parametrize("model_type", ["gemma3_text", "modernbert"])
def test_rotary_parameters_of_kinds_of_layers_mean_the_same(model_type: str, name: str, tmp_path: Path) -> None:
    compare(tmp_path, model_type, {**PARAMETERS, **LAYERS}[name])


def test_a_model_that_rotates_a_part_of_each_head_is_saved_in_a_family_that_does(tmp_path: Path) -> None:
    sizes = {"d_model": 32, "n_layers": 1, "n_heads": 4, "d_ff": 48, "vocab_size": 60}
    model = qkv.build(qkv.preset("llama", **sizes, position=Rotary(fraction=0.5)))
    model.save(tmp_path, to="hub")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert theirs.config.model_type == "phi3"
    ids = torch.arange(12)[None]
    with torch.no_grad():
        assert differ(model.eval()(ids), theirs.eval()(ids).logits) < 1e-5
