"""What is saved of a loaded model goes by its own family, with PEFT and transformers as judges."""

from __future__ import annotations

import copy
import json
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import qkv
from qkv.cli import main
from qkv.nn.layers.lora import LoRA, layers
from qkv.runs.export import gguf

sys.path.insert(0, str(Path(__file__).parents[1] / "families"))

from hub_cases import CASES, Case, transformers
from hub_sizes import EOS, PAD

peft = pytest.importorskip("peft", reason="parity is with PEFT, a test dependency")

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


# -- every family ------------------------------------------------------------------------------------------------------

IMAGES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 4,
}
VISION = {
    "vit": Case("ViTForImageClassification", IMAGES, does="see"),
    "deit": Case("DeiTForImageClassification", IMAGES, does="see"),
    "yolos": Case("YolosForObjectDetection", {**IMAGES, "image_size": [16, 16], "num_detection_tokens": 4}, does="see"),
}

REFUSED = ("qwen3-moe-all-dense", "qwen3-moe-partly-dense-sliding")


def saved(folder: Path, case: Case) -> Any:
    """Their random model, saved, and a function that loads it."""
    torch.manual_seed(0)
    cls = getattr(transformers, case.cls)
    tokens = {} if case.does == "see" else {"bos_token_id": 1, "eos_token_id": EOS, "pad_token_id": PAD}
    model = cls(cls.config_class(**{**tokens, **case.config}))
    with torch.no_grad():
        for parameter in filter(lambda parameter: parameter.requires_grad, model.parameters()):
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder)
    more = {} if case.does == "see" else {"attn_implementation": case.attention}
    return lambda: cls.from_pretrained(folder, **more).eval()


def _theirs(model: Any, case: Case) -> torch.Tensor:
    inputs = _inputs(case)
    output = model(inputs, **({"decoder_input_ids": inputs[:, :5]} if case.does == "translate" else {}))
    for name in (case.outputs, "logits", "last_hidden_state"):
        if name and getattr(output, name, None) is not None:
            found = getattr(output, name)
            return found.unsqueeze(-1) if case.labels == 1 else found
    return output[0]


def _ours(model: Any, case: Case) -> torch.Tensor:
    inputs = _inputs(case)
    output = model(inputs, inputs[:, :5]) if case.does == "translate" else model(inputs)
    return getattr(output, "logits", output)


def _inputs(case: Case) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    if case.does == "see":
        return torch.randn(2, 3, 16, 16, generator=generator)
    return torch.randint(6, 90, (2, 12), generator=generator)


def differ(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


@torch.no_grad()
def _compare(folder: Path, case: Case, which: tuple[str, ...]) -> None:
    """PEFT computes what qkv does with an adapter that qkv saved, and qkv what PEFT does with it saved again by PEFT."""
    load = saved(folder / "base", case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = qkv.load(folder / "base", device="cpu").model
        qkv.adapt(model, qkv.LoRA(rank=3, alpha=5.0, layers=which))
        for layer in layers(model).values():
            layer.lora_b.normal_(0, 0.1, generator=torch.Generator().manual_seed(2))
        qkv.save_adapter(model, folder / "adapter", folder / "base")
        expected, plain = _ours(model, case), _ours(qkv.load(folder / "base", device="cpu").model, case)
        adapted = peft.PeftModel.from_pretrained(load(), folder / "adapter").eval()
        assert differ(plain, expected) > 1e-3
        assert differ(_theirs(adapted, case), expected) < 1e-5
        adapted.save_pretrained(folder / "again")
        again = qkv.load_adapter(qkv.load(folder / "base", device="cpu").model, folder / "again")
        assert differ(_ours(again, case), expected) < 1e-5


def test_layers_that_peft_takes_for_experts_are_refused(tmp_path: Path) -> None:
    saved(tmp_path / "base", CASES["qwen3-moe-all-dense"])
    model = qkv.load(tmp_path / "base", device="cpu").model
    qkv.adapt(model, qkv.LoRA(rank=3))
    with pytest.raises(ValueError, match=r"PEFT takes .*mlp\.gate_proj.* of qwen3_moe for experts"):
        qkv.save_adapter(model, tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()


@pytest.mark.slow
@pytest.mark.parametrize("which", [("*.blocks.*",), ("*.attention.[qv]",)], ids=["all", "qv"])
@pytest.mark.parametrize("name", [*CASES, *VISION])
def test_peft_loads_adapters_of_every_family(name: str, which: tuple[str, ...], tmp_path: Path) -> None:
    if which == ("*.blocks.*",) and name in REFUSED:
        with pytest.raises(ValueError, match="for experts"):
            _compare(tmp_path, CASES[name], which)
    else:
        _compare(tmp_path, {**CASES, **VISION}[name], which)


@pytest.mark.parametrize("how", ["run hub", "run qkv", "run", "model", "gguf", "qlora"])
@torch.no_grad()
def test_what_is_saved_of_a_model_with_an_adapter_computes_as_peft_does(how: str, tmp_path: Path) -> None:
    """Formats of models hold no adapters, so it is merged into the weights that are written, and stays in the model."""
    theirs = made("mistral", tmp_path / "base")
    adapted = peft.get_peft_model(theirs, peft.LoraConfig(r=2, target_modules=["q_proj", "down_proj"])).eval()
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            parameter.normal_()
    adapted.save_pretrained(tmp_path / "adapter")
    run = qkv.load(tmp_path / "base", device="cpu", **({"weights": "int8"} if how == "qlora" else {}))
    qkv.load_adapter(run.model, tmp_path / "adapter")
    ids, out = inputs("mistral"), tmp_path / ("out.gguf" if how == "gguf" else "out")
    wanted = run.model(ids)
    if how != "qlora":
        torch.testing.assert_close(wanted, adapted(ids).logits, atol=1e-4, rtol=1e-4)
    if how == "gguf":
        gguf.save(run.model, out)
    elif how == "model":
        run.model.save(out)
    else:
        run.save(out, *how.replace("qlora", "run qkv").split()[1:])
    torch.testing.assert_close(qkv.load(out, device="cpu").model(ids), wanted, atol=1e-4, rtol=1e-4)
    assert torch.equal(run.model(ids), wanted) and len(layers(run.model)) == 4


def test_an_adapter_beside_its_model_is_told(tmp_path: Path) -> None:
    made("mistral", tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.warns(UserWarning, match="holds an adapter beside the model, and only the model is read"):
        qkv.load(tmp_path, device="cpu")


def test_an_adapter_alone_names_what_loads_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = made("mistral", tmp_path / "base")
    model = peft.get_peft_model(theirs, peft.LoraConfig(r=2, target_modules=["q_proj"]))
    model.peft_config["default"].base_model_name_or_path = str(tmp_path / "base")
    model.save_pretrained(tmp_path / "ad")
    with pytest.raises(ValueError, match="ad holds an adapter without its base model; load both in Python") as said:
        qkv.load(tmp_path / "ad")
    code = str(said.value).split("`")[1]
    found: dict[str, Any] = {"qkv": qkv}
    exec(code, found)
    assert len(layers(found["run"].model)) == 2
    for command in (["generate", "ad", "a"], ["convert", "ad", "out"], ["train", "lm", "model=ad"], ["show", "ad"]):
        assert (
            main([part.removesuffix("ad") + str(tmp_path / "ad") if part.endswith("ad") else part for part in command])
            == 2
        )
        assert "qkv.load_adapter(run.model" in " ".join(capsys.readouterr().err.split()), command


def test_an_adapter_that_names_another_model_of_the_hub_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "models--mistralai--Mistral-7B-v0.1" / "snapshots" / "0123"
    made("mistral", folder)
    named = qkv.load(folder, device="cpu").model
    qkv.save_adapter(qkv.adapt(copy.deepcopy(named), LoRA(rank=2)), tmp_path / "adapter")
    written = tmp_path / "adapter" / "adapter_config.json"
    config = json.loads(written.read_text())

    def told(base: str | None, model: Any = named) -> list[str]:
        written.write_text(json.dumps({**config, "base_model_name_or_path": base}))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            qkv.load_adapter(copy.deepcopy(model), tmp_path / "adapter")
        return [str(one.message) for one in said if "outputs are wrong" in str(one.message)]

    for same in ("mistralai/Mistral-7B-v0.1", "unsloth/mistral_7b_v0.1-bnb-4bit"):
        assert not told(same)
    for unknown in ("/somewhere/another", None):
        assert not told(unknown)
    for other in ("mistralai/Mistral-7B-v0.3", "mistralai/Mistral-7B-Instruct-v0.1"):
        (one,) = told(other)
        assert f"names '{other}' as the model that it was trained on" in one
        assert "is put into 'mistralai/Mistral-7B-v0.1'" in one
    elsewhere = shutil.copytree(folder, tmp_path / "copy")  # a directory has any name
    assert not told("mistralai/Mistral-7B-v0.3", qkv.load(elsewhere, device="cpu").model)
