"""Models of GGUF files."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from gguf_models import made, origin_of

from qkv.io.directories import gguf_load
from qkv.nn.layers.quantized import quantized
from qkv.nn.models.quantized.dequantize import dequantize
from qkv.nn.models.quantized.select import matrices
from qkv.nn.quantization.scheme import Scheme
from qkv.runs.export.gguf import save


@pytest.mark.parametrize(
    ("name", "kind"), [("gpt2", "q4_0"), ("llama", "q8_0"), ("falcon 40b", "q4_0"), ("olmo2", "q8_0")]
)
@torch.no_grad()
def test_quantized_files_stay_quantized(name: str, kind: str, tmp_path: Path) -> None:
    model, origin = made(name), origin_of(name)
    path = save(model, tmp_path / "m.gguf", kind, origin=origin)
    back = gguf_load.load(path, torch.device("cpu"))[0]
    codes = quantized(back)
    formats = {path: matrix.format.name for path, matrix in codes.items()}
    assert len(codes) == len(matrices(model, embeddings=True, head=True))
    assert formats["decoder.blocks.0.attention.q"] == ("int8" if kind == "q8_0" else "int4")
    dense = copy.deepcopy(back)
    dequantize(dense)
    ids = torch.randint(96, (2, 20), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(back(ids), dense(ids), rtol=1e-4, atol=1e-4)
    again = save(back, tmp_path / "again.gguf", origin=origin)
    assert again.read_bytes() == path.read_bytes()
    rounded = gguf_load.load(path, torch.device("cpu"), scheme=Scheme(weights="nf4", group_size=16))[0]
    assert quantized(rounded)["decoder.blocks.0.attention.q"].format.name == "nf4"


def test_metadata_that_are_not_read_are_told(tmp_path: Path) -> None:
    path = save(made("llama"), tmp_path / "m.gguf")
    known, added = b"llama.vocab_size", b"llama.clamp_kqvs"
    path.write_bytes(path.read_bytes().replace(known, added))
    with pytest.warns(UserWarning, match="qkv does not read its metadata 'clamp_kqvs', by which llama.cpp may compute"):
        gguf_load.load(path, torch.device("cpu"))
