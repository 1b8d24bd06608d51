"""Programs of `torch.export` and AOTInductor packages run without qkv, from Python and from C++, and give its tokens."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import qkv
from qkv.cli import main
from qkv.generation import generate
from qkv.runs.export import torch_export
from qkv.runs.inference.run import Run

ROOT = Path(__file__).parents[3]
PAGE, EXAMPLE = ROOT / "docs" / "export.md", ROOT / "docs" / "examples" / "aoti"
PROMPTS = [[7, 3, 11, 40, 2], [5, 9]]
SIZES: dict[str, Any] = {"d_model": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 60}
WITHOUT_QKV = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "qkv":
            raise ImportError("qkv is blocked")

sys.meta_path.insert(0, Blocked())
"""


def page() -> str:
    """The page's loop, which ends with `tokens`, a list."""
    pattern = r"^```python\n(import json.*?)^```"
    (block,) = re.findall(pattern, PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return block


def in_another_process(code: str, folder: Path) -> str:
    """What a program prints that can't import qkv."""
    command = [sys.executable, "-c", WITHOUT_QKV + code]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=250).stdout


@pytest.fixture(scope="module")
def lm(trained_lm: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """A trained language model, converted from the command line, not compiled."""
    folder = tmp_path_factory.mktemp("pt2") / "exported"
    assert main(["convert", str(trained_lm), str(folder), "--to", "torch-export", "--no-aot"]) == 0
    return qkv.load(trained_lm, "cpu"), folder


@pytest.mark.slow
def test_the_loop_of_the_page_without_qkv(lm: tuple[Run, Path]) -> None:
    run, folder = lm
    wanted = generate(run.model, [[7, 3, 11]], max_new_tokens=8).sequences[0][0]
    assert in_another_process(page(), folder.parent).split("\n")[-2] == str(wanted)


def test_a_program_stands_beside_its_description(lm: tuple[Run, Path]) -> None:
    _, folder = lm
    names = {path.name for path in folder.iterdir()}
    assert {"model.pt2", "graphs.json", "config.json", "tokenizer.json"} <= names and "model.so.pt2" not in names
    described = json.loads((folder / "graphs.json").read_text())["model"]
    assert [one["name"] for one in described["inputs"]][:3] == ["input_ids", "attention_mask", "position_ids"]
    assert described["inputs"][3]["shape"] == ["batch_size", 2, "past_sequence_length", 8]
    assert described["outputs"] == ["logits", "present.0.key", "present.0.value"]


def test_padded_rows(lm: tuple[Run, Path]) -> None:
    run, folder = lm
    programs = torch_export.Programs(folder, json.loads((folder / "graphs.json").read_text()), compiled=False)
    ids, mask = torch.tensor([PROMPTS[0], [0, 0, 0, *PROMPTS[1]]]), torch.tensor([[1] * 5, [0, 0, 0, 1, 1]])
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    out = programs("model", {"input_ids": ids, "attention_mask": mask, "position_ids": positions})
    wanted = run.model(ids, attention_mask=mask).detach()
    torch.testing.assert_close(out["logits"][mask.bool()], wanted[mask.bool()], rtol=1e-4, atol=1e-5)


def test_a_compiler_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_export, "compiler", lambda: None)
    with pytest.raises(ValueError, match=r"takes a C\+\+ compiler, and there is none here: install g\+\+"):
        torch_export.to_torch_export(Run(qkv.build(qkv.preset("gpt2", **SIZES)), None), tmp_path / "out", aot=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "t5-small", "bert-base", "vit-base-16"])
def test_exported_families_give_the_same_outputs(name: str, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"d_ff": 48, **SIZES}
    if name == "llama":
        sizes["n_kv_heads"] = 2
    if name == "vit-base-16":
        sizes = {**sizes, "image": (32, 32), "patch": (8, 8), "labels": 4}
        del sizes["vocab_size"]
    model = qkv.build(qkv.preset(name, **sizes), seed=5).eval()  # type: ignore[call-overload]
    assert torch_export.to_torch_export(Run(model, None), tmp_path / "out", aot=False).error < 1e-4


MOE = {"decoder.blocks.*.feedforward": {"kind": "moe", "n_experts": 3, "d_ff": 16}}
LINEAR = {"decoder.blocks.0.attention": {"kind": "linear-attention", "n_heads": 4, "pattern": "causal"}}


@pytest.mark.slow
@pytest.mark.parametrize("changes", [MOE, LINEAR], ids=["mixture", "linear attention"])
def test_mixtures_and_states(changes: dict[str, Any], tmp_path: Path) -> None:
    model = qkv.build(qkv.preset("gpt2", **SIZES, max_positions=64).replace(changes), seed=5).eval()
    assert torch_export.to_torch_export(Run(model, None), tmp_path / "exported", aot=False).error < 1e-4
    wanted = generate(model, [[7, 3, 11]], max_new_tokens=8).sequences[0][0]
    assert in_another_process(page(), tmp_path).split("\n")[-2] == str(wanted)


@pytest.mark.slow
@pytest.mark.skipif(torch_export.compiler() is None, reason="needs a C++ compiler")
@pytest.mark.timeout(900)
def test_a_compiled_mixture_multiplies_all_tokens(tmp_path: Path) -> None:
    """The error that is found before anything is written is the package's."""
    model = qkv.build(qkv.preset("gpt2", **{**SIZES, "n_layers": 1}, max_positions=64).replace(MOE), seed=5).eval()
    exported = torch_export.to_torch_export(Run(model, None), tmp_path / "exported", aot=True)
    assert exported.compiled and exported.error < 1e-4


@pytest.mark.slow
def test_recurrent_models_are_programs_only(tmp_path: Path) -> None:
    model = qkv.build(qkv.preset("rnnsearch", vocab_size=60, d_e=8, d_h=8, d_s=8), seed=5).eval()
    exported = torch_export.to_torch_export(Run(model, None), tmp_path / "exported")
    assert exported.graphs == ("encoder_model", "decoder_model") and not exported.compiled and exported.error < 1e-4
    with pytest.raises(ValueError, match=r"can't compile a recurrent model's loop .* leave --aot out"):
        torch_export.to_torch_export(Run(model, None), tmp_path / "other", aot=True)
    assert [path.name for path in tmp_path.iterdir()] == ["exported"]


@pytest.mark.slow
@pytest.mark.skipif(torch_export.compiler() is None, reason="needs a C++ compiler")
@pytest.mark.timeout(900)
def test_packages_run_in_python_and_c(tmp_path: Path) -> None:
    model = qkv.build(qkv.preset("gpt2", **SIZES, max_positions=64), seed=5).eval()
    exported = torch_export.to_torch_export(Run(model, None), tmp_path / "exported", aot=True)
    assert exported.compiled and exported.error < 1e-4
    wanted = generate(model, [[7, 3, 11]], max_new_tokens=8).sequences[0][0]
    compiled = page().replace(PROGRAM, PACKAGE)
    assert compiled != page()
    assert in_another_process(compiled, tmp_path).split("\n")[-2] == str(wanted)
    if shutil.which("cmake") is None:
        return
    prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    for command in (["cmake", "-S", str(EXAMPLE), "-B", "build", prefix], ["cmake", "--build", "build"]):
        made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert made.returncode == 0, made.stdout[-3000:] + made.stderr[-3000:]
    arguments = ["exported/model.so.pt2", "2", "4", "8", "8", "7", "3", "11"]
    said = subprocess.run(["build/generate", *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert [int(token) for token in said.stdout.split()] == wanted


PROGRAM = 'torch.export.load("exported/model.pt2").module()'
PACKAGE = 'torch._inductor.aoti_load_package("exported/model.so.pt2")'
