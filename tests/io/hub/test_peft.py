"""Adapters in PEFT's format: there and back, fused matrices too, and in PEFT itself if that is installed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import qkv
import qkv.io.families
from qkv.nn.layers.lora import layers

ROOT = Path(__file__).parents[3]
THEIRS = ROOT / "bench" / ".envs" / "huggingface" / "bin" / "python"
IDS = torch.randint(0, 60, (2, 7), generator=torch.Generator().manual_seed(0))
SMALL = {"d_model": 32, "n_layers": 2, "n_heads": 4, "d_ff": 48, "vocab_size": 60}
# Plain names, fused behind one another and turned, fused head by head, and an encoder–decoder.
FAMILIES = ["llama", "gpt2", "gpt-neox-20b", "bart-base"]


def model(name: str) -> qkv.TransformerModel:
    more = {"max_positions": 32} if name == "gpt2" else {}
    return qkv.build(qkv.preset(name, **SMALL, **more)).eval()


def adapted(name: str, **settings: object) -> qkv.TransformerModel:
    made = qkv.adapt(model(name), qkv.LoRA(**{"rank": 3, "alpha": 5.0, **settings}))  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(1)
    for layer in layers(made).values():
        layer.lora_b.data.normal_(0, 0.2, generator=generator)
    return made


def logits(made: qkv.TransformerModel) -> torch.Tensor:
    with torch.no_grad():
        return made(IDS, IDS) if made.is_encoder_decoder else made(IDS)  # type: ignore[return-value]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("which", [("*.blocks.*",), ("*.attention.[qv]",)], ids=["all", "qv"])
def test_there_and_back(name: str, stable: bool, which: tuple[str, ...], tmp_path: Path):
    made = adapted(name, rank_stabilized=stable, layers=which)
    qkv.save_adapter(made, tmp_path, base="somewhere")
    again = qkv.load_adapter(model(name), tmp_path)
    torch.testing.assert_close(logits(again), logits(made), atol=1e-5, rtol=1e-4)
    qkv.save_adapter(again, tmp_path / "again")
    first, second = (load_file(folder / "adapter_model.safetensors") for folder in (tmp_path, tmp_path / "again"))
    assert first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


def test_fused_matrices_have_the_sum_of_the_ranks(tmp_path: Path):
    qkv.save_adapter(adapted("gpt2", layers=("*.attention.[qv]", "*.up")), tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    name = "base_model.model.transformer.h.0.attn.c_attn"
    assert tensors[f"{name}.lora_A.weight"].shape == (6, 32) and tensors[f"{name}.lora_B.weight"].shape == (96, 6)
    assert not tensors[f"{name}.lora_B.weight"][32:64].any()  # the keys are not adapted
    assert config["fan_in_fan_out"] and config["rank_pattern"]["transformer.h.0.attn.c_attn"] == 6
    assert config["alpha_pattern"]["transformer.h.0.attn.c_attn"] == pytest.approx(10.0)


def test_what_the_format_cannot_say_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="has no LoRA adapter"):
        qkv.save_adapter(model("llama"), tmp_path / "x")
    with pytest.raises(ValueError, match="also trains"):
        qkv.save_adapter(adapted("llama", train="*.norm.*"), tmp_path / "x")
    with pytest.raises(ValueError, match="no adapter's directory"):
        qkv.load_adapter(model("llama"), tmp_path / "x")
    with pytest.raises(
        ValueError, match="adapters belong to Transformers, such as `model` of a run, and this model is 3"
    ):
        qkv.load_adapter(3, tmp_path / "x")  # type: ignore[type-var]
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"peft_type": "IA3"}, "only 'LORA' is known here: merge it with peft"),
        ({"peft_type": "PROMPT_TUNING"}, "only 'LORA' is known here$"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "'bias'"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"init_lora_weights": "pissa_niter_4"}, "changes the weights"),
    ],
)
def test_an_adapter_that_is_more_than_lora_is_refused(change: dict[str, object], said: str, tmp_path: Path):
    qkv.save_adapter(adapted("llama"), tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | change))
    fresh = model("llama")
    with pytest.raises(ValueError, match=said):
        qkv.load_adapter(fresh, tmp_path)
    assert not layers(fresh)


def test_a_whole_matrix_beside_an_adapter_is_refused(tmp_path: Path):
    qkv.save_adapter(adapted("llama"), tmp_path)
    stored = load_file(tmp_path / "adapter_model.safetensors")
    save_file(stored | {"base_model.model.lm_head.weight": torch.zeros(4, 4)}, tmp_path / "adapter_model.safetensors")
    with pytest.raises(ValueError, match=r"lm_head.weight' is a whole matrix, .* the vocabulary was resized: merge it"):
        qkv.load_adapter(model("llama"), tmp_path)


def test_an_adapter_of_another_model_is_refused(tmp_path: Path):
    qkv.save_adapter(adapted("llama"), tmp_path)
    with pytest.raises(ValueError, match="belongs to no linear layer"):
        qkv.load_adapter(model("gpt2"), tmp_path)
    wider = qkv.build(qkv.preset("llama", **{**SMALL, "d_model": 64}))
    with pytest.raises(ValueError, match="and the layer is"):
        qkv.load_adapter(wider, tmp_path)


SCRIPT = """
import sys, torch
from pathlib import Path
from typing import Any
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM
TARGETS = {"llama": ["q_proj", "down_proj"], "gpt2": ["c_attn", "c_fc"], "gpt-neox-20b": ["query_key_value"]}
for folder, targets in TARGETS.items():
    folder = Path(sys.argv[1]) / folder
    ids = torch.load(folder / "ids.pt")
    load = lambda: AutoModelForCausalLM.from_pretrained(folder / "base").eval()
    ours = PeftModel.from_pretrained(load(), folder / "ours")
    theirs = get_peft_model(load(), LoraConfig(r=4, lora_alpha=6, target_modules=targets))
    torch.manual_seed(0)
    for name, parameter in theirs.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(0, 0.2)
    theirs.save_pretrained(folder / "theirs")
    with torch.no_grad():
        save_file({"ours": ours(ids).logits, "theirs": theirs.eval()(ids).logits}, folder / "logits.safetensors")
"""


@pytest.mark.slow
def test_peft_computes_the_same(tmp_path: Path):
    if not THEIRS.exists() or subprocess.run([THEIRS, "-c", "import peft"], capture_output=True).returncode:
        pytest.skip("peft is not installed in bench/.envs/huggingface: pip install peft")
    for name in FAMILIES[:3]:
        made = adapted(name)
        qkv.save_adapter(made, tmp_path / name / "ours")
        base = model(name)
        qkv.Run(base, None).save(tmp_path / name / "base", to="hub")
        torch.save(IDS, tmp_path / name / "ids.pt")
    subprocess.run([THEIRS, "-c", SCRIPT, tmp_path], check=True, timeout=300)
    for name in FAMILIES[:3]:
        expected = load_file(tmp_path / name / "logits.safetensors")
        torch.testing.assert_close(logits(adapted(name)), expected["ours"], atol=1e-5, rtol=1e-4)
        loaded = qkv.load_adapter(model(name), tmp_path / name / "theirs")
        torch.testing.assert_close(logits(loaded), expected["theirs"], atol=1e-5, rtol=1e-4)


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("alone", [True, False])
def test_what_peft_trained_on_a_model_of_qkv_is_loaded_and_saved(alone: bool, tmp_path: Path) -> None:
    """PEFT knows it by qkv's names, below an Auto class or alone; a model with ALiBi has no other names."""
    peft = pytest.importorskip("peft")
    from auto_models import IDS, config, llama
    from transformers import AutoModelForCausalLM

    def made() -> Any:
        return AutoModelForCausalLM.from_config(config(llama(decoder__position=qkv.ALiBi()), seed=2)).eval()

    theirs = made()
    usual = {} if alone else {"task_type": "CAUSAL_LM"}
    lora = peft.LoraConfig(target_modules=["q", "up"], r=3, init_lora_weights=False, **usual)
    trained = peft.get_peft_model(theirs.model if alone else theirs, lora).eval()
    wanted = trained(IDS) if alone else trained(IDS).logits
    trained.save_pretrained(tmp_path / "theirs")
    ours = qkv.load_adapter(made().model, tmp_path / "theirs")
    torch.testing.assert_close(ours(IDS), wanted, atol=1e-5, rtol=1e-5)
    qkv.save_adapter(ours, tmp_path / "ours")
    again = peft.PeftModel.from_pretrained(made(), tmp_path / "ours").eval()
    torch.testing.assert_close(again(IDS).logits, wanted, atol=1e-5, rtol=1e-5)
    wider = qkv.build(llama(decoder__position=qkv.ALiBi(), d_model=64))
    with pytest.raises(ValueError, match="and the layer is"):
        qkv.load_adapter(wider, tmp_path / "theirs")
