"""`qkv convert`: formats there and back, and what is refused before anything is read or written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import qkv
from qkv.cli import main
from qkv.io.directories.build import build
from qkv.io.families import preset
from qkv.runs.inference.run import Run, load


@pytest.fixture
def source(tmp_path: Path) -> Path:
    spec = preset("gpt2", d_model=16, n_layers=1, n_heads=2, vocab_size=20, max_positions=8)
    return Run(build(spec), None).save(tmp_path / "source", to="hub")


def test_to_ours_and_back(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    assert main(["convert", str(source), str(ours), "--to", "qkv"]) == 0
    assert '"model_type": "qkv"' in (ours / "config.json").read_text()
    assert main(["convert", str(ours), str(theirs)]) == 0, capsys.readouterr().err
    before, after = load_file(source / "model.safetensors"), load_file(theirs / "model.safetensors")
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    assert "parameters" in capsys.readouterr().out


def test_the_weights_alone(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / "weights.safetensors"
    assert main(["convert", str(source), str(target), "--to", "safetensors", "--dtype", "bfloat16"]) == 0
    tensors = load_file(target)
    assert "decoder.blocks.0.attention.q.weight" in tensors
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    short = tmp_path / "short.safetensors"  # the names of training.precision
    assert main(["convert", str(source), str(short), "--to", "safetensors", "--dtype", "bf16"]) == 0
    assert short.read_bytes() == target.read_bytes()


def test_a_model_of_no_family_says_so(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = preset("gpt2", d_model=16, n_layers=1, n_heads=2, vocab_size=20, position="alibi")
    run = Run(build(spec), None).save(tmp_path / "alibi", to="qkv")
    assert main(["convert", str(run), str(tmp_path / "a")]) == 0
    assert "saved under the model type 'qkv'" in capsys.readouterr().err
    assert main(["convert", str(run), str(tmp_path / "b"), "--to", "hub"]) == 0
    said = capsys.readouterr().err
    assert "which Auto classes know after `import qkv.transformers`: no Hub family matches this model" in said
    written = json.loads((tmp_path / "b" / "config.json").read_text())
    assert (written["model_type"], written["architectures"]) == ("qkv", ["QkvForCausalLM"])
    assert load(tmp_path / "b").model.spec == spec
    recurrent = Run(build(preset("rnnsearch", d_e=8, d_h=8, d_s=8, d_a=8, vocab_size=20)), None)
    with pytest.raises(ValueError, match="no Hub family has models of the kind 'recurrent'"):
        recurrent.save(tmp_path / "c", to="hub")


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["source", "out", "--to", "qvk"], "there is no format 'qvk'; did you mean 'qkv'"),
        (["source", "source"], "already exists; replace it with --overwrite, or choose another name"),
        (["source", "out", "--to", "safetensors"], "writes one file, NAME.safetensors"),
        (["source", "out.safetensors"], "writes one file, NAME.safetensors"),
        (["source", "source/config.json"], "is a file; a model is a directory"),
        (["source", "out", "--to", "qkv", "--int8"], "--int8 is for --to onnx, and the format is qkv; leave it out"),
        (
            ["source", "out", "--to", "onnx", "--dtype", "bfloat16"],
            "weights in the format onnx are float32, not bfloat16",
        ),
        (
            ["source", "out.safetensors", "--to", "onnx"],
            "writes one file, NAME.safetensors, and other formats directories",
        ),
        (["/nowhere/at/all", "out"], "there is no run directory /nowhere/at/all"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: list[str],
    said: str,
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(source.parent)
    assert main(["convert", *arguments]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (source.parent / "out").exists()


@pytest.mark.parametrize("to", ["hub", "qkv"])
def test_a_model_that_another_process_has_saved_meanwhile_stays(
    to: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The target was free when the command began."""
    target, other = tmp_path / "new", Run(build(preset("gpt2", d_model=8, n_layers=1, n_heads=1, vocab_size=9)), None)
    saved = []

    def meanwhile(*_: object) -> None:
        if not saved:
            saved.append(target)
            other.save(target)

    monkeypatch.setattr("qkv.io.directories.save.check_room", meanwhile)
    assert main(["convert", str(source), str(target), "--to", to]) == 2
    assert "already" in capsys.readouterr().err and qkv.load(target).model.spec.d_model == 8
