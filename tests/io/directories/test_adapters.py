"""What is saved of a loaded model goes by its own family, with PEFT and transformers as judges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import qkv

peft = pytest.importorskip("peft", reason="parity is with PEFT, a test dependency")
transformers = pytest.importorskip("transformers", reason="parity is with transformers, a test dependency")

TOKENS = {"pad_token_id": 3, "bos_token_id": 4, "eos_token_id": 5}
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA = {**SIZES, "intermediate_size": 48, "num_key_value_heads": 2, "vocab_size": 97, **TOKENS}
GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40, "vocab_size": 97, **TOKENS}
FALCON = {**SIZES, "vocab_size": 97, **TOKENS}
VIT = {**SIZES, "intermediate_size": 48, "image_size": 16, "patch_size": 4}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "phi3": ("Phi3ForCausalLM", LLAMA),
    "mistral": ("MistralForCausalLM", {**LLAMA, "sliding_window": None}),
    "bigcode": ("GPTBigCodeForCausalLM", {**GPT, "multi_query": False}),
    "falcon": ("FalconForCausalLM", {**FALCON, "multi_query": False, "parallel_attn": False}),
    "vit": ("ViTForImageClassification", VIT),
    "deit": ("DeiTForImageClassification", VIT),
}


def made(name: str, folder: Path) -> Any:
    torch.manual_seed(0)
    kind, config = MODELS[name]
    cls = getattr(transformers, kind)
    theirs = cls._from_config(cls.config_class(**config), attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    theirs.save_pretrained(folder)
    return theirs


def inputs(name: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    if MODELS[name][1] is VIT:
        return torch.randn(2, 3, 16, 16, generator=generator)
    return torch.randint(6, 97, (2, 9), generator=generator)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_peft_computes_the_same_with_an_adapter_of_ours(name: str, tmp_path: Path) -> None:
    theirs, given = made(name, tmp_path / "model"), inputs(name)
    model = qkv.load(tmp_path / "model", device="cpu").model
    qkv.adapt(model, qkv.LoRA(rank=3, layers=("*.attention.[qv]", "*.feedforward.*")))
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.normal_(0, 0.1)
    qkv.save_adapter(model, tmp_path / "adapter")
    before = theirs(given).logits
    after = peft.PeftModel.from_pretrained(theirs, tmp_path / "adapter").eval()(given).logits
    assert (after - before).norm() > 1e-2 * before.norm()
    torch.testing.assert_close(model(given), after, rtol=1e-4, atol=1e-4)
    again = qkv.load_adapter(qkv.load(tmp_path / "model", device="cpu").model, tmp_path / "adapter")
    torch.testing.assert_close(again(given), after, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", ["qkv_proj", "gate_up_proj"])
@torch.no_grad()
def test_an_adapter_of_peft_on_fused_matrices_is_loaded(target: str, tmp_path: Path) -> None:
    theirs = made("phi3", tmp_path / "model")
    adapted = peft.get_peft_model(theirs, peft.LoraConfig(r=3, target_modules=[target], init_lora_weights=False)).eval()
    adapted.save_pretrained(tmp_path / "adapter")
    model = qkv.load_adapter(qkv.load(tmp_path / "model", device="cpu").model, tmp_path / "adapter")
    torch.testing.assert_close(model(inputs("phi3")), adapted(inputs("phi3")).logits, rtol=1e-4, atol=1e-4)
    built = qkv.build(model.spec)  # of the same spec, without a word of its family
    built.load_state_dict(qkv.load(tmp_path / "model", device="cpu").model.state_dict())
    torch.testing.assert_close(qkv.load_adapter(built, tmp_path / "adapter")(inputs("phi3")), model(inputs("phi3")))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_is_saved_keeps_its_configuration(name: str, tmp_path: Path) -> None:
    made(name, tmp_path / "model")
    model = qkv.load(tmp_path / "model", device="cpu").model
    model.save(tmp_path / "saved")
    before, after = (json.loads((tmp_path / folder / "config.json").read_text()) for folder in ("model", "saved"))
    assert before == after


def test_a_changed_model_keeps_its_family_and_tokens(tmp_path: Path) -> None:
    made("phi3", tmp_path / "model")
    model = qkv.load(tmp_path / "model", device="cpu").model
    qkv.replace(model, {"decoder.blocks.*.attention.n_kv_heads": 1}).model.save(tmp_path / "saved")
    config = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert config["model_type"] == "phi3" and config["num_key_value_heads"] == 1
    assert {name: config[name] for name in TOKENS} == TOKENS
