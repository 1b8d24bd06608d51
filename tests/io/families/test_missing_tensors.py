"""Tensors that a file lacks or that nothing reads: told as transformers tells them, or refused if it is another
model."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from pathlib import Path

import pytest
import torch
from hub_cases import CASES, Case, transformers
from hub_models import Inputs, Pair, inputs, made, ours, pair, theirs
from safetensors.torch import load_file, save_file

from qkv.runs.inference.run import load

SEVERAL = {case.cls: name for name, case in CASES.items()}  # one of each class
WEIGHTS = "model.safetensors"


def copied(both: Pair, folder: Path, tensors: dict[str, torch.Tensor], **config: object) -> Path:
    """The directory of a model with other tensors and settings."""
    folder.mkdir(exist_ok=True)
    settings = json.loads((both.folder / "config.json").read_text()) | config
    (folder / "config.json").write_text(json.dumps({key: v for key, v in settings.items() if v != "gone"}))
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()}, folder / WEIGHTS, metadata={"format": "pt"}
    )
    return folder


def tensors_of(both: Pair) -> dict[str, torch.Tensor]:
    return load_file(both.folder / WEIGHTS)


def said(folder: Path) -> tuple[str, list[str]]:
    """ "loaded", or the sentence with which loading is refused; and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            load(folder, device="cpu")
            how = "loaded"
        except ValueError as error:
            how = str(error)
    return how, [str(one.message) for one in caught]


@pytest.mark.slow
@pytest.mark.parametrize("name", SEVERAL.values())
def test_what_transformers_calls_missing_is_refused_or_told(name: str, tmp_path: Path) -> None:
    both = pair(name)
    tensors = tensors_of(both)
    for lacking in [tensor for tensor in tensors if not re.search(r"\.[1-9]\.", tensor)]:
        rest = {tensor: value for tensor, value in tensors.items() if tensor != lacking}
        folder = copied(both, tmp_path / "lacking", rest)
        how, told = said(folder)
        try:
            _, info = type(both.theirs).from_pretrained(folder, output_loading_info=True)
        except RuntimeError:  # an expert's tensor: the others can't be stacked without it
            assert lacking in how
            continue
        if not info["missing_keys"]:
            assert how == "loaded" and not told, lacking
        elif "embed_positions" in lacking and not any(learned in name for learned in ("bart", "opt")):
            assert how == "loaded"  # which are computed
        elif "untied" in name and lacking.endswith(("predictions.bias", "lm_head.bias")):
            assert how == "loaded" and not told  # which no pass reads: an untied head adds decoder.bias
        elif "contact_head" in lacking or "inv_freq" in lacking:
            assert how == "loaded" and not told  # which qkv does not have, or computes
        elif how == "loaded":
            assert lacking.endswith("decoder.bias") or "pooler" in lacking
            assert any("MISSING" in message and lacking in message for message in told), lacking
        else:  # transformers writes ESM's norms by their old names
            current = lacking.replace("LayerNorm.beta", "LayerNorm.bias").replace("LayerNorm.gamma", "LayerNorm.weight")
            assert current in how


@pytest.mark.parametrize("name", ["llama", "gpt2-untied", "bert", "electra-generator"])
def test_a_model_without_its_head_is_not_loaded_as_another(name: str, tmp_path: Path) -> None:
    both = pair(name)
    head = ("lm_head", "cls.", "generator_")
    rest = {tensor: value for tensor, value in tensors_of(both).items() if not tensor.startswith(head)}
    how, _ = said(folder := copied(both, tmp_path / "headless", rest))
    assert "MISSING" in how and both.case.cls in how
    (advice,) = re.findall(r'put "architectures": (\[.*?\])', how)
    copied(both, folder, rest, architectures=json.loads(advice))  # the advice works
    assert said(folder)[0] == "loaded"


def test_the_transformer_of_an_embedder_has_no_head_to_miss(tmp_path: Path) -> None:
    both = pair("bert")
    rest = {tensor: value for tensor, value in tensors_of(both).items() if not tensor.startswith("cls.")}
    folder = copied(both, tmp_path / "embedder", rest)
    (folder / "modules.json").write_text("[]")
    assert said(folder) == ("loaded", [])


@torch.no_grad()
def test_tensors_beside_the_model_are_unexpected_and_those_within_it_are_refused(tmp_path: Path) -> None:
    both = pair("llama")
    tensors, one = tensors_of(both), torch.ones(3)
    how, told = said(folder := copied(both, tmp_path / "more", {**tensors, "v_head.summary.weight": one}))
    assert how == "loaded" and "UNEXPECTED" in told[0] and "v_head.summary.weight" in told[0]
    given = inputs(both.case)
    assert torch.equal(ours(both, given, load(folder, device="cpu").model), ours(both, given))
    how, _ = said(copied(both, folder, {**tensors, "model.layers.0.self_attn.q_proj.bias": one}))
    assert "model.layers.0.self_attn.q_proj.bias" in how
    how, _ = said(copied(both, folder, tensors, num_hidden_layers=1))
    assert "model.layers.1." in how  # of a model with more layers


def test_a_class_that_has_less_than_the_file_is_told(tmp_path: Path) -> None:
    both = pair("llama")
    how, told = said(copied(both, tmp_path / "more", tensors_of(both), architectures=["LlamaModel"]))
    assert how == "loaded" and "names LlamaModel" in told[0] and "LlamaForCausalLM" in told[0]


def _output(cls: str, folder: Path, both: Pair, given: Inputs) -> torch.Tensor:
    model = getattr(transformers, cls).from_pretrained(folder, attn_implementation="eager").eval()
    return theirs(both, given, model)


@pytest.mark.parametrize("name", ["bert", "roberta", "albert", "big-bird", "longformer"])
@torch.no_grad()
def test_two_biases_of_a_head_that_differ_are_read_as_transformers_reads_them(name: str, tmp_path: Path) -> None:
    """A configuration may call the head tied while the file has both biases and both matrices."""
    both = pair(f"{name}-untied")
    folder, given = copied(both, tmp_path / "both", tensors_of(both), tie_word_embeddings=True), inputs(both.case)
    torch.testing.assert_close(
        ours(both, given, load(folder, device="cpu").model)[given.mask > 0],
        _output(both.case.cls, folder, both, given)[given.mask > 0],
        rtol=1e-4,
        atol=1e-4,
    )


def test_the_bias_of_a_tied_head_stands_in_for_one_that_is_missing(tmp_path: Path) -> None:
    """transformers 4 tied the two biases whatever the configuration said, and wrote the first."""
    both = pair("bert-untied")
    tensors = tensors_of(both)
    del tensors["cls.predictions.decoder.bias"]
    how, told = said(folder := copied(both, tmp_path / "old", tensors))
    assert how == "loaded" and "MISSING" in told[0] and "cls.predictions.bias" in told[0]
    assert torch.equal(load(folder, device="cpu").model.head.bias, tensors["cls.predictions.bias"])


def test_copies_of_what_is_one_tensor_have_to_be_equal(tmp_path: Path) -> None:
    both = pair("t5-gated")
    tensors = tensors_of(both)
    copy = {"encoder.embed_tokens.weight": tensors["shared.weight"].clone()}
    assert said(copied(both, tmp_path / "copies", tensors | copy)) == ("loaded", [])
    copy["encoder.embed_tokens.weight"][3, 2] += 1
    how, _ = said(copied(both, tmp_path / "copies", tensors | copy))
    assert "encoder.embed_tokens.weight" in how


@pytest.mark.parametrize("name", ["marian", "pegasus"])
def test_computed_positions_have_to_match_the_file(name: str, tmp_path: Path) -> None:
    both = pair(name)
    key = "model.encoder.embed_positions.weight"
    tensors = {**tensors_of(both), key: both.theirs.state_dict()[key].clone()}
    assert said(copied(both, tmp_path / "positions", tensors))[0] == "loaded"
    half = {**tensors, key: tensors[key].bfloat16().float()}
    assert said(copied(both, tmp_path / "positions", half))[0] == "loaded"
    tensors[key][5] += 0.5
    assert key in said(copied(both, tmp_path / "positions", tensors))[0]


@torch.no_grad()
def test_a_bias_that_old_files_lack_is_zero(tmp_path: Path) -> None:
    both, given = pair("bart"), inputs(pair("bart").case)
    tensors = {name: value for name, value in tensors_of(both).items() if name != "final_logits_bias"}
    folder = copied(both, tmp_path / "old", tensors)
    model = load(folder, device="cpu").model
    assert not model.head.bias.any()
    found, wanted = ours(both, given, model), _output(both.case.cls, folder, both, given)
    torch.testing.assert_close(found[given.mask > 0], wanted[given.mask > 0], rtol=1e-4, atol=1e-4)


def test_a_model_saved_as_another_family_keeps_the_roles_of_its_tokens(tmp_path: Path) -> None:
    """Qwen3-MoE with windows in some layers only, which its keys can't say, is saved as Qwen3."""
    case = CASES["qwen3-moe-all-dense"]
    both = made(Case(case.cls, {**case.config, "pad_token_id": 7}), "roles")
    model = both.ours
    model.spec = model.spec.replace(
        {"decoder.blocks.0.attention.pattern": {"kind": "and", "parts": ["causal", {"kind": "window", "size": 4}]}}
    )
    saved = json.loads((both.run.save(tmp_path / "qwen3", to="hub") / "config.json").read_text())
    assert saved["model_type"] == "qwen3"
    assert (saved["bos_token_id"], saved["eos_token_id"], saved["pad_token_id"]) == (1, 5, 7)
    shutil.rmtree(tmp_path / "qwen3")
