"""Where the Hub's implementation does not do what its configuration says, ours does."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parent))

from hub_cases import transformers
from hub_sizes import BLOOM, MPT, SIZES

import qkv
from qkv.io.families import FAMILIES
from qkv.nn.positions.rotary import Rotary
from qkv.runs.inference.run import load


@torch.no_grad()
def test_mpt_falls_as_steeply_as_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers' MptModel makes its ALiBi without handing `alibi_bias_max` on; handed on, it is ours."""
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    torch.manual_seed(5)
    config = transformers.MptConfig(**MPT, attn_config={"alibi_bias_max": 16})
    theirs = transformers.MptForCausalLM._from_config(config, attn_implementation="eager").eval()
    for parameter in theirs.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.2)
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path, device="cpu").model
    told = lambda n_heads, length, device=None: build_mpt_alibi_tensor(n_heads, length, 16, device)  # noqa: E731
    monkeypatch.setattr(theirs.transformer, "build_mpt_alibi_tensor", told)
    ids = torch.arange(6, 30)[None]
    torch.testing.assert_close(ours(ids), theirs(ids).logits, rtol=1e-4, atol=1e-4)


SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 97,
}
WHOLE = ["Llama", "Mistral", "Qwen2", "Qwen3", "Gemma2", "Olmo2", "Granite", "SmolLM3", "Mixtral", "Qwen3Moe"]


@pytest.mark.parametrize("family", WHOLE)
def test_a_part_of_each_head_is_refused_where_transformers_rotates_whole_heads(family: str) -> None:
    """transformers' default frequencies of these families ignore `partial_rotary_factor`; with scalings it fails."""
    rope = {"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.5}
    config = getattr(transformers, f"{family}Config")(**SMALL, rope_parameters=rope).to_dict()
    with pytest.raises(ValueError, match=r"partial_rotary_factor is 0\.5, and transformers rotates whole heads"):
        FAMILIES[config["model_type"]].spec(config, f"{family}ForCausalLM")
    del config["rope_parameters"]["partial_rotary_factor"]
    assert FAMILIES[config["model_type"]].spec(config, f"{family}ForCausalLM").decoder.position.fraction == 1.0


def test_a_part_of_each_head_is_not_written_as_a_family_that_rotates_whole_heads() -> None:
    sizes = {"d_model": 32, "n_layers": 2, "n_heads": 4, "d_ff": 48, "vocab_size": 97}
    part = qkv.preset("llama", **sizes, position=Rotary(fraction=0.5))
    with pytest.raises(ValueError, match=r"rotates whole heads, and this model rotates 0\.5 of each"):
        FAMILIES["llama"].config(part)
    assert FAMILIES["phi3"].config(part)["rope_parameters"]["partial_rotary_factor"] == 0.5


def test_a_cap_of_scores_that_transformers_never_applies_is_refused() -> None:
    config = transformers.Gemma3TextConfig(**SMALL, attn_logit_softcapping=1.0).to_dict()
    with pytest.raises(ValueError, match=r"attn_logit_softcapping=1\.0 is not built here; what is, is None"):
        FAMILIES["gemma3_text"].spec(config, "Gemma3ForCausalLM")


@torch.no_grad()
def test_slices_without_biases_are_refused(tmp_path: Path) -> None:
    for slices in (1, 2):
        config = transformers.BloomConfig(**BLOOM, slow_but_exact=True, pretraining_tp=slices)
        theirs = transformers.BloomForCausalLM._from_config(config, attn_implementation="eager").eval()
        theirs.save_pretrained(tmp_path)
        if slices == 2:
            with pytest.raises(ValueError, match="slow_but_exact with pretraining_tp 2 is not built here"):
                load(tmp_path, device="cpu")
        else:
            ids = torch.arange(6, 30)[None]
            torch.testing.assert_close(
                load(tmp_path, device="cpu").model(ids), theirs(ids).logits, rtol=1e-4, atol=1e-4
            )


PUBLISHED = {
    "model_type": "nomic_bert",
    "architectures": ["NomicBertForPreTraining"],
    "auto_map": {"AutoModel": "modeling_hf_nomic_bert.NomicBertModel"},
    "activation_function": "swiglu",
    "attn_pdrop": 0.0,
    "causal": False,
    "mlp_fc1_bias": False,
    "n_embd": 32,
    "n_head": 4,
    "n_inner": 48,
    "n_layer": 2,
    "n_positions": 64,
    "layer_norm_epsilon": 1e-12,
    "max_trained_positions": 16,
    "pad_vocab_size_multiple": 64,
    "prenorm": False,
    "qkv_proj_bias": False,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": 2,
    "type_vocab_size": 2,
    "use_flash_attn": True,
    "vocab_size": 97,
}
"""The configuration of nomic-embed-text-v1 at a tiny size."""


@torch.no_grad()
def test_a_published_nomic_bert_has_the_keys_of_gpt_2(tmp_path: Path) -> None:
    """transformers ignores these keys; its model with the sizes that they say is ours."""
    rope = {"rope_type": "dynamic", "rope_theta": 1000.0, "factor": 2.0}
    config = transformers.NomicBertConfig(**{**SIZES, "max_position_embeddings": 16}, rope_parameters=rope)
    torch.manual_seed(6)
    theirs = transformers.NomicBertForMaskedLM._from_config(config, attn_implementation="eager").eval()
    theirs.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    named = {name.replace("nomic_bert.", "bert."): tensor for name, tensor in tensors.items()}
    save_file(named, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED))
    run = load(tmp_path, device="cpu")
    for length in (9, 30):  # the second is longer than the trained context
        ids = torch.arange(6, 6 + length)[None]
        torch.testing.assert_close(run.model(ids), theirs(ids).logits, rtol=1e-5, atol=1e-5)
    again = run.save(tmp_path / "again", to="hub")
    kept = json.loads((again / "config.json").read_text())
    assert {key: kept[key] for key in PUBLISHED} == {**PUBLISHED, "architectures": ["NomicBertForMaskedLM"]}
    assert load(again, device="cpu").model.spec == run.model.spec


@pytest.mark.parametrize(
    "change, said",
    [
        ({"activation_function": "gelu"}, "activation_function 'gelu' is not built here"),
        ({"qkv_proj_bias": True}, "qkv_proj_bias=True is not built here"),
        ({"rotary_emb_fraction": 0.5}, "rotates whole heads"),
        ({"prenorm": True}, "prenorm=True is not built here"),
    ],
)
def test_other_layers_of_nomic_bert_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        FAMILIES["nomic_bert"].spec({**PUBLISHED, **change})
