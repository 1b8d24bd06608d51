"""A small Whisper with random weights, as transformers' model and as a run."""

from __future__ import annotations

from typing import Any

import pytest

import qkv


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, qkv.Run]:
    pytest.importorskip("transformers")
    from tests.helpers import whispering

    folder = tmp_path_factory.mktemp("whisper")
    return whispering.save(folder, seed=0), qkv.load(folder, device="cpu")
