"""The package of llama.cpp reads what is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf_contents import METADATA, TENSORS, made

from qkv.io.hub.gguf.block_types import BY_NAME
from qkv.io.hub.gguf.blocks import quantize


def test_their_package_reads_what_is_written(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="the container is held to llama.cpp's package gguf")
    reader = gguf.GGUFReader(made(tmp_path / "m.gguf"))
    for key, value in METADATA.items():
        theirs = reader.fields[key].contents()
        assert theirs == (value.tolist() if isinstance(value, np.ndarray) else value), key
    for tensor in reader.tensors:
        x, kind = TENSORS[tensor.name]
        assert tensor.tensor_type.name.lower() == kind and list(reversed(tensor.shape.tolist())) == list(x.shape)
        assert np.array_equal(tensor.data.reshape(-1).view(np.uint8), quantize(x, BY_NAME[kind]).numpy())
