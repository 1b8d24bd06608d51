"""Which modules an adapter's configuration means, and their ranks and alphas: held to PEFT itself."""

from __future__ import annotations

import json
import logging
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import qkv
from qkv.core import expressions
from qkv.io.hub import peft as ours
from qkv.runs.inference.run import load

peft = pytest.importorskip("peft", reason="adapters are held to PEFT, a test dependency")
transformers = pytest.importorskip("transformers")

IDS = torch.randint(0, 60, (2, 7), generator=torch.Generator().manual_seed(0))
Q0 = "model.layers.0.self_attn.q_proj"
RULES: dict[str, dict[str, Any]] = {
    "suffixes": {"target_modules": ["q_proj", "mlp.down_proj"]},
    "a regular expression": {"target_modules": r".*\.(q|v)_proj"},
    "a regular expression of whole names": {"target_modules": rf"model\.layers\.1\..*_proj|{Q0}"},
    "all": {"target_modules": "all-linear"},
    "excluded by suffix": {"target_modules": ["q_proj", "up_proj"], "exclude_modules": ["1.self_attn.q_proj"]},
    "excluded by expression": {"target_modules": "all-linear", "exclude_modules": r".*layers\.0\..*(q|k|up)_proj"},
    "one layer": {"target_modules": ["q_proj", "v_proj"], "layers_to_transform": 1},
    "layers": {"target_modules": ["q_proj"], "layers_to_transform": [0, 2], "layers_pattern": "layers"},
    "alpha by suffix": {"target_modules": ["q_proj", "v_proj"], "alpha_pattern": {"q_proj": 32, "v_proj": 2}},
    "alpha by expression": {
        "target_modules": ["q_proj", "v_proj"],
        "alpha_pattern": {r"layers\.[12]\.self_attn\.(q|v)_proj": 20, ".*v_proj": 3, "q_proj": 1},
    },
    "not a part of a word": {"target_modules": ["q_proj", "k_proj"], "alpha_pattern": {"proj": 50, "k_pro.": 7}},
    "ranks": {"target_modules": ["q_proj", "o_proj"], "rank_pattern": {r"layers.\d.self_attn.q_proj": 2}},
    "ranks and alphas, stabilized": {
        "target_modules": "all-linear",
        "use_rslora": True,
        "rank_pattern": {"^model.layers.1.mlp.(up|gate)_proj": 6, "mlp.*": 3},
        "alpha_pattern": {"mlp.down_proj": 9, "self_attn.*": 5},
    },
}
NARROWED: dict[str, dict[str, Any]] = {  # of an adapter whose tensors are for all linear layers
    "suffixes": {"target_modules": ["q_proj"]},
    "an expression": {"target_modules": r".*layers\.1\..*_proj"},
    "exclusion": {"exclude_modules": ["up_proj", "k_proj"]},
    "layers": {"target_modules": ["q_proj", "up_proj"], "layers_to_transform": [0]},
    "a whole name in any layer": {"target_modules": [Q0, "v_proj"], "layers_to_transform": [1]},
}


@pytest.fixture(scope="module", autouse=True)
def quiet() -> None:
    transformers.logging.set_verbosity_error()
    logging.getLogger("peft").setLevel(logging.ERROR)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = transformers.LlamaConfig(vocab_size=60, bos_token_id=1, eos_token_id=2, **sizes)
    folder = tmp_path_factory.mktemp("peft") / "base"
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def fresh(base: Path) -> Any:
    return transformers.LlamaForCausalLM.from_pretrained(base).eval()


def written(base: Path, folder: Path, **rules: Any) -> Path:
    """An adapter that PEFT makes, with large numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = peft.get_peft_model(fresh(base), peft.LoraConfig(r=4, lora_alpha=6, **rules))
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(0, 0.3, generator=generator)
    model.save_pretrained(folder)
    return folder


@torch.no_grad()
def compare(base: Path, adapter: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = peft.PeftModel.from_pretrained(fresh(base), adapter).eval()(IDS).logits
    plain = load(base, device="cpu").model
    before = plain(IDS)
    found = qkv.load_adapter(plain, adapter)(IDS)
    assert (found - wanted).norm() / wanted.norm() < 1e-5
    assert torch.equal(before, wanted) or (wanted - before).norm() / before.norm() > 1e-2  # an adapter does something


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_ranks_alphas_and_modules_are_peft_s(rules: dict[str, Any], base: Path, tmp_path: Path) -> None:
    compare(base, written(base, tmp_path / "adapter", **rules))


@pytest.fixture(scope="module")
def whole(base: Path) -> Path:
    return written(base, base.parent / "whole", target_modules="all-linear")


@pytest.mark.parametrize("rules", NARROWED.values(), ids=NARROWED)
def test_tensors_of_modules_that_are_not_targeted_are_left_out_and_told(
    rules: dict[str, Any], base: Path, whole: Path, tmp_path: Path
) -> None:
    adapter = narrowed(whole, tmp_path, rules)
    with pytest.warns(UserWarning, match="does not target"):
        compare(base, adapter)


def narrowed(whole: Path, folder: Path, rules: dict[str, Any]) -> Path:
    (folder / "adapter_model.safetensors").write_bytes((whole / "adapter_model.safetensors").read_bytes())
    config = json.loads((whole / "adapter_config.json").read_text()) | rules
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def test_targets_without_tensors_are_told(base: Path, tmp_path: Path) -> None:
    adapter = written(base, tmp_path / "some", target_modules=["q_proj"])
    adapter = narrowed(adapter, tmp_path, {"target_modules": ["q_proj", "v_proj"]})
    with pytest.warns(UserWarning, match="has no tensors"):
        compare(base, adapter)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"target_modules": "(q_proj"}, "target_modules: .* is not a regular expression"),
        ({"target_modules": 3}, "target_modules is a list of names or one regular expression"),
        ({"exclude_modules": [1]}, "exclude_modules is a list"),
        ({"target_modules": ["q_proj"], "layers_to_transform": "one"}, "layers_to_transform is"),
        ({"alpha_pattern": {"q_proj": "much"}}, "alpha_pattern is an object of positive numbers"),
        ({"alpha_pattern": ["q_proj"]}, "alpha_pattern is an object of positive numbers"),
        ({"rank_pattern": {"*": 3}}, "rank_pattern: .* is not a regular expression"),
        (
            {"target_modules": ["q_proj"], "layers_to_transform": [0], "layers_pattern": ["h"]},
            "targets no linear layer",
        ),
        ({"rank_pattern": {"q_proj": 3}}, "has rank 4, and its configuration says 3"),
    ],
)
def test_rules_that_are_none_are_refused(
    rules: dict[str, Any], said: str, base: Path, whole: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=said):
        qkv.load_adapter(load(base, device="cpu").model, narrowed(whole, tmp_path, rules))


def test_the_rules_agree_with_peft_s_on_many_names() -> None:
    names = [
        f"{a}.{i}.{b}"
        for a in ("model.layers", "h", "encoder.block")
        for i in (0, 1, 11)
        for b in ("q", "mlp.1.q", "xq")
    ]
    for config in (
        {"target_modules": ["q"], "layers_to_transform": [1]},
        {"target_modules": ["q"], "layers_to_transform": [1], "layers_pattern": ["layers", "block"]},
        {"target_modules": ["1.q"], "exclude_modules": ["mlp.1.q"]},
        {"target_modules": r".*\d\.x?q", "exclude_modules": r"h\..*"},
    ):
        theirs = peft.LoraConfig(**config)
        for name in names:
            wanted = bool(peft.tuners.tuners_utils.check_target_module_exists(theirs, name))
            assert ours.targets(config)(name) == wanted, (config, name)


@pytest.mark.parametrize(
    "key", ["target_modules", "exclude_modules", "alpha_pattern", "rank_pattern", "layers_pattern"]
)
def test_an_endless_expression_is_refused(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`adapter_config.json` comes from anyone."""
    monkeypatch.setattr(expressions, "SECONDS", 0.05)
    endless, name = r"(.|..)+$\d", "model.layers.0.self_attn.a_long_name_of_a_projection"
    lists = {"target_modules": ["q_proj", name.rpartition(".")[2]], "layers_to_transform": [0]}
    config = {key: {endless: 2}} if key.endswith("_pattern") and key != "layers_pattern" else {**lists, key: endless}
    with pytest.raises(ValueError, match=f"{key}: the regular expression .* took longer than"):
        if key in ("alpha_pattern", "rank_pattern"):
            ours.pattern_of(config, key, name)
        else:
            ours.targets(config)(name)
