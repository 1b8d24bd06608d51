"""A directory of an unknown model type is told the family whose tensors it has, and the advice works."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from hub_models import pair

import qkv


def renamed(name: str, folder: Path, **keys: object) -> Path:
    """The directory of a case under a type and a class that nobody knows."""
    shutil.copytree(pair(name).folder, folder, ignore=shutil.ignore_patterns("saved"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "zyx", "architectures": ["Zyx"]} | keys))
    return folder


@pytest.mark.parametrize("name", ["llama", *(pytest.param(n, marks=pytest.mark.slow) for n in ("bert", "opt", "t5"))])
def test_the_advice_works(name: str, tmp_path: Path) -> None:
    folder = renamed(name, tmp_path / "zyx", zyx_width=3)
    with pytest.raises(ValueError, match="there is no model type 'zyx' here") as error:
        qkv.load(folder, device="cpu")
    said = re.search(r'put "model_type": "(\w+)" and "architectures": \["(\w+)"\] into its', str(error.value))
    assert said is not None and str(error.value).endswith(f"and remove 'zyx_width', which {said[1]} doesn't know")
    config = json.loads((folder / "config.json").read_text()) | {"model_type": said[1], "architectures": [said[2]]}
    del config["zyx_width"]
    (folder / "config.json").write_text(json.dumps(config))
    ids = torch.arange(6, 15)[None]
    inputs = (ids, ids) if name == "t5" else (ids,)
    assert torch.equal(qkv.load(folder, device="cpu").model(*inputs), pair(name).ours(*inputs))


@pytest.mark.slow
def test_a_directory_like_none_is_told_none(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    (tmp_path / "config.json").write_text('{"model_type": "zyx"}')
    save_file({"zyx.a": torch.zeros(2), "zyx.b": torch.zeros(3)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="there is no model type 'zyx' here") as error:
        qkv.load(tmp_path, device="cpu")
    assert "tensors" not in str(error.value)
