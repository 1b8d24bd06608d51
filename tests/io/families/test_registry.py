"""`FAMILIES`: each family stands under its own model type, and is imported when it is asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import qkv
from qkv.io.families import ENCODER_DECODERS, FAMILIES, family_of, like

ONE = """
import sys
from qkv.io.families import FAMILIES
FAMILIES["mt5"]
print(*sorted(name for name in sys.modules if name.startswith("qkv.io.families.")))
"""


@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_family_stands_under_its_model_type(model_type: str) -> None:
    assert FAMILIES[model_type].model_type == model_type


def test_a_model_with_an_encoder_and_a_decoder_is_compared_with_such_families_only() -> None:
    both = [model_type for model_type, family in FAMILIES.items() if family.is_encoder_decoder]
    assert both == [model_type for model_types in ENCODER_DECODERS.values() for model_type in model_types]
    assert like(qkv.preset("t5-small")) == "t5" and like(qkv.preset("bert-base")) == "bert"


def test_only_the_family_that_is_asked_for_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", ONE], capture_output=True, text=True, timeout=120, check=True)
    assert "qkv.io.families.t5" in done.stdout.split() and "qkv.io.families.bert" not in done.stdout.split()


ACME = """
from dataclasses import replace
from functools import partial

from .classes import decoders
from .llama import FAMILY as LLAMA
from .llama import llama

acme = partial(llama, out_bias=True)
SIZES = {"acme-tiny": {"vocab_size": 9, "d_model": 8, "n_layers": 1, "n_heads": 2, "d_ff": 8}}
FAMILY = replace(LLAMA, model_type="acme", make=acme, classes=decoders("Acme"))
"""
USE = """
import json

import torch

import qkv
from qkv.cli import main

model = qkv.build(qkv.preset("acme-tiny"), seed=1)
model.save("saved", "hub")
config = json.load(open("saved/config.json"))
assert config["model_type"] == "acme" and config["architectures"] == ["AcmeForCausalLM"], config
loaded = qkv.load("saved").model
tokens = torch.tensor([[1, 2, 3]])
assert loaded.spec.decoder.blocks[0].attention.out_bias and torch.equal(loaded(tokens), model(tokens))
main(["list", "presets"])
"""


def test_a_file_and_a_row_of_the_table_add_a_family_that_is_listed_saved_and_loaded(tmp_path: Path) -> None:
    source, copy = Path(qkv.__file__).parent, tmp_path / "qkv"
    for folder, changed in ((".", "io"), ("io", "families")):
        (copy / folder).mkdir(exist_ok=True)
        for path in (source / folder).iterdir():
            if path.name not in (changed, "__pycache__"):
                (copy / folder / path.name).symlink_to(path)
    families = copy / "io" / "families"
    shutil.copytree(source / "io" / "families", families, ignore=shutil.ignore_patterns("__pycache__"))
    (families / "acme.py").write_text(ACME, encoding="utf-8")
    table = (families / "__init__.py").read_text(encoding="utf-8")
    row = '    "captioner": (),\n'
    assert row in table
    (families / "__init__.py").write_text(table.replace(row, f'{row}    "acme": ("acme",),\n'), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", USE], capture_output=True, text=True, timeout=200, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "acme-tiny" in done.stdout and "captioner" in done.stdout


def test_there_is_no_family_of_another_name() -> None:
    assert "gpt" not in FAMILIES and len(FAMILIES) == len(list(FAMILIES.values()))
    with pytest.raises(KeyError):
        FAMILIES["gpt"]


def test_heads_that_do_not_divide_a_nested_width_are_a_difference() -> None:
    spec = qkv.preset("deit-tiny-distilled", d_model=8, n_layers=1, n_heads=4, d_ff=1, position="rotary")
    with pytest.raises(ValueError, match="no Hub family matches"):
        family_of(spec)
