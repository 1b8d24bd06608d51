"""Types of numbers in GGUF, beside the package `gguf`."""

from __future__ import annotations

import pytest

from qkv.io.hub.gguf.block_types import BY_NAME, TYPES, written_type


def test_ids_and_sizes_are_those_of_their_package() -> None:
    gguf = pytest.importorskip("gguf")
    theirs = {kind.name.lower(): (kind.value, *gguf.GGML_QUANT_SIZES[kind]) for kind in gguf.GGMLQuantizationType}
    ours = {kind.name: (kind.id, kind.width, kind.size) for kind in TYPES}
    common = theirs.keys() & ours.keys()
    assert len(common) > 25 and {n: ours[n] for n in common} == {n: theirs[n] for n in common}
    assert not theirs.keys() - ours.keys()


def test_a_type_is_written_by_its_name_in_any_case() -> None:
    assert written_type("Q8_0") is BY_NAME["q8_0"]
    with pytest.raises(ValueError, match=r"not written in the type 'q4_k' \(it is only read\)"):
        written_type("q4_k")
    with pytest.raises(ValueError, match="not written in the type 'q9_0'; did you mean"):
        written_type("q9_0")
