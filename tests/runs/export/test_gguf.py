"""Models of every family that llama.cpp has, written as GGUF and read again; what it can't say is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gguf_models import CASES, GEMMA, LENGTH, LLAMA, made, origin_of, trained

from qkv.cli import main
from qkv.io.directories import gguf_load
from qkv.io.directories.build import build
from qkv.io.directories.spec import weights_of
from qkv.io.families import preset
from qkv.io.hub.gguf import container
from qkv.nn.layers.quantized import quantized
from qkv.nn.positions.rope_scaling import DynamicNTK, Llama3Scaling
from qkv.nn.positions.rotary import Rotary
from qkv.runs.export.gguf import save
from qkv.runs.inference.run import Run, load
from qkv.runs.recipes.model_choice import ModelChoice
from qkv.runs.train.pretrained import check_trainable


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_there_and_back(name: str, tmp_path: Path) -> None:
    model = made(name)
    path = save(model, tmp_path / "m.gguf", "f32", origin=origin_of(name))
    back, _, tokenizer = gguf_load.load(path, torch.device("cpu"))
    assert tokenizer is None
    ids = torch.randint(96, (2, 20), generator=torch.Generator().manual_seed(1))
    ours, theirs = model(ids), back(ids)
    assert float((ours - theirs).norm() / ours.norm()) < 1e-6


@pytest.mark.slow
def test_their_package_has_every_name(tmp_path: Path) -> None:
    """The tensor names of each architecture are among llama.cpp's."""
    gguf = pytest.importorskip("gguf", reason="names are held to llama.cpp's package gguf")
    architectures = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
    for name in CASES:
        path = save(made(name), tmp_path / "m.gguf", "f32", origin=origin_of(name))
        read = container.read(path)
        arch = architectures[read.metadata["general.architecture"]]
        known = {gguf.TENSOR_NAMES[tensor] for tensor in gguf.MODEL_TENSORS[arch]}
        if arch == gguf.MODEL_ARCH.GRANITE:
            known.add("rope_freqs")  # which llama.cpp reads, but the package's table lacks
        for tensor in read.stored:
            parts = tensor.removesuffix(".weight").removesuffix(".bias").split(".")
            generic = ".".join("{bid}" if part.isdecimal() else part for part in parts)
            assert generic in known, (name, tensor)


def test_q8_0_and_q4_0_keep_vectors_and_the_output(tmp_path: Path) -> None:
    model = made("llama")
    for kind, output in (("q8_0", "q8_0"), ("q4_0", "q8_0"), ("bf16", "bf16")):
        read = container.read(save(model, tmp_path / "m.gguf", kind))
        types = {name: tensor.type.name for name, tensor in read.stored.items()}
        assert types["blk.0.attn_q.weight"] == kind and types["output.weight"] == output
        assert types["blk.0.attn_norm.weight"] == "f32"
    with pytest.warns(UserWarning, match=r"30 matrices, such as token_embd.weight, are written as f16"):
        narrow = build(preset("llama", **{**LLAMA, "d_model": 40, "d_ff": 50, "n_heads": 2}))
        save(narrow, tmp_path / "n.gguf", "q8_0")


@pytest.mark.parametrize(("weights", "kind"), [("int8", "q8_0"), ("int4", "q4_0")])
def test_a_quantized_run_keeps_its_codes(weights: str, kind: str, tmp_path: Path) -> None:
    run = Run(made("llama"), None, task="continue").quantize(weights, group_size=32)  # type: ignore[arg-type]
    file = container.read(save(run.model, tmp_path / "m.gguf"))
    types = {name: tensor.type.name for name, tensor in file.stored.items()}
    assert types["blk.0.attn_q.weight"] == types["blk.3.ffn_down.weight"] == kind
    assert types["token_embd.weight"] == types["output.weight"] == "f32"
    assert file.metadata["general.file_type"] == {"q8_0": 7, "q4_0": 2}[kind]
    back = quantized(load(tmp_path / "m.gguf", "cpu").model)
    for path, matrix in quantized(run.model).items():
        assert torch.equal(matrix.codes, back[path].codes) and torch.equal(
            matrix.scales.half(), back[path].scales.half()
        )
    with pytest.raises(ValueError, match=r"qkv writes no GGUF of mxfp4 weights \(blk.0.attn_q.weight\)"):
        save(Run(made("llama"), None, task="continue").quantize("mxfp4").model, tmp_path / "x.gguf")
    assert not (tmp_path / "x.gguf").exists()


def test_a_quantized_file_as_the_base_of_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = build(preset("llama", **{**LLAMA, "vocab_size": 310}), seed=1)
    file, folder = save(model, tmp_path / "m.gguf", "q8_0", tokenizer=trained()), tmp_path / "dense"
    assert weights_of(str(file)) == "int8" and ModelChoice(directory=str(file)).stored == "int8"
    assert main(["convert", str(file), str(folder), "--dequantize"]) == 0, capsys.readouterr().err
    dense, codes = load(folder, "cpu").model, load(file, "cpu").model
    assert not quantized(dense) and weights_of(str(folder)) is None
    for path, matrix in quantized(codes).items():
        assert torch.equal(dense.get_submodule(path).weight, matrix.dense())
    with pytest.raises(ValueError, match=r"int8 weights of .* don't train; .* qkv convert .*m.gguf DIR --dequantize"):
        check_trainable(ModelChoice(directory=str(file)), adapted=False)


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = build(preset("gpt2", **{**LENGTH, "vocab_size": 300}), seed=1)
    run, file, folder = tmp_path / "run", tmp_path / "m.gguf", tmp_path / "hub"
    Run(model.eval(), trained()).save(run, to="hub")
    assert main(["convert", str(run), str(file), "--to", "gguf"]) == 0, capsys.readouterr().err
    assert "bytes" in capsys.readouterr().out
    arguments = ["the cat", "--max-new-tokens", "12"]
    assert main(["generate", str(run), *arguments]) == 0
    said = capsys.readouterr().out
    assert main(["generate", str(file), *arguments]) == 0 and capsys.readouterr().out == said
    assert main(["show", str(file), "--json"]) == 0 and '"general.architecture": "gpt2"' in capsys.readouterr().out
    assert main(["convert", str(file), str(folder)]) == 0
    assert main(["generate", str(folder), *arguments]) == 0 and said in capsys.readouterr().out
    assert main(["convert", str(run), str(file), "--to", "gguf"]) == 2
    assert "already exists; replace it with --overwrite, or choose another name" in capsys.readouterr().err
    assert main(["convert", str(run), str(tmp_path / "x"), "--to", "gguf"]) == 2
    assert "writes one file, NAME.gguf" in capsys.readouterr().err
    assert main(["convert", str(run), str(tmp_path / "x"), "--type", "q8_0"]) == 2
    assert "--type q8_0 is for --to gguf" in capsys.readouterr().err


UNREAD: dict[str, dict[str, Any]] = {
    "qwen2-7b": LLAMA,
    "qwen3-0.6b": LLAMA,
    "olmo-2-7b": LLAMA,
    "smollm3-3b": LLAMA,
    "pythia-160m": {**LENGTH, "d_ff": 96},
}
"""Families in which llama.cpp reads no `rope_freqs` (it refuses a file with a tensor that it doesn't read)."""
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a mechanism": ("gpt2", {**LENGTH, "position": "alibi"}, "no Hub family matches this model; "),
    "a family": ("openai-gpt", LENGTH, "qkv writes no GGUF files of 'openai-gpt'; it writes them of gpt2, "),
    "a scaling": (
        "llama",
        {**LLAMA, "position": Rotary(scaling=DynamicNTK(factor=2.0, original_max_positions=32))},
        r"a rotary scaling like this model's .*; linear, llama3 and yarn .* are written",
    ),
    **{
        f"llama3 in {kind}": (
            kind,
            {**sizes, "position": Rotary(scaling=Llama3Scaling(factor=4.0, original_max_positions=32))},
            r"qkv writes no GGUF of this family with .*; linear and yarn .* are written",
        )
        for kind, sizes in UNREAD.items()
    },
    "heads that don't divide the width": ("qwen2-7b", {**LLAMA, "d_head": 32}, "d_head = 16, and this model 32"),
    "a part of each head": ("qwen3-0.6b", {**LLAMA, "position": Rotary(fraction=0.5)}, "rotates whole heads"),
    "an activation": ("llama", {**LLAMA, "activation": "relu"}, "hidden_act has to be silu or swish there, and this"),
    "biases": ("qwen3-0.6b", {**LLAMA, "attention_bias": True}, "attention of this family has no bias of its output"),
    "falcon with biases": (
        "falcon-7b",
        {**LENGTH, "bias": True},
        "has rotary positions, no biases, and its sublayers side by side",
    ),
    "windows": (
        "gemma-2-2b",
        {**GEMMA, "windows": [16, 16, None] * 2},
        "whose layers slide but for the last of each 2",
    ),
    "a bare model": ("gpt2", {**LENGTH, "head": False}, "GGUF is written for GPT2LMHeadModel of this family"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_llama_cpp_cannot_say_is_refused(name: str, tmp_path: Path) -> None:
    kind, sizes, said = REFUSED[name]
    model = build(preset(kind, **sizes))
    with pytest.raises(ValueError, match=said):
        save(model, tmp_path / "m.gguf")
    assert not list(tmp_path.iterdir())


def test_numbers_that_a_type_cannot_hold(tmp_path: Path) -> None:
    model = build(preset("gpt2", **LENGTH))
    weight = model.state_dict()["decoder.blocks.0.attention.q.weight"]
    weight[0, 0] = 1e5
    with pytest.raises(ValueError, match=r"attn_qkv.weight has numbers beyond fp16's largest.*choose --type bf16"):
        save(model, tmp_path / "m.gguf", "f16")
    weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match="holds NaN or infinities"):
        save(model, tmp_path / "m.gguf", "f32")
    assert not list(tmp_path.iterdir())


def test_a_window_shortens_the_context(tmp_path: Path) -> None:
    model = build(preset("mistral-7b", **{**LLAMA, "windows": 16}))
    with pytest.warns(
        UserWarning, match="llama.cpp computes no sliding windows here, so the context that is written is"
    ):
        path = save(model, tmp_path / "m.gguf")
    assert container.read(path).metadata["llama.context_length"] == 16
