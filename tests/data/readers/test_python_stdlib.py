from __future__ import annotations

import pytest

from qkv.data.readers.python_stdlib import StandardLibrary

SMALL = StandardLibrary(packages=("json", "asyncio", "email", "logging"), validation=0.2, test=0.2)


def test_the_splits_share_no_module() -> None:
    found = {split: set(SMALL.texts(split)) for split in ("train", "validation", "test")}
    assert all(found.values())
    assert not found["train"] & found["validation"] and not found["train"] & found["test"]
    assert any("class JSONDecoder" in text for part in found.values() for text in part)


@pytest.mark.slow
def test_the_whole_library_is_a_corpus_of_megabytes_without_tests() -> None:
    table = StandardLibrary().table("train")
    assert len(table) > 300
    assert len(StandardLibrary().table("validation")) > 3


def test_unknown_packages_are_named() -> None:
    with pytest.raises(ValueError, match="no 'jsn'; did you mean 'json'"):
        StandardLibrary.from_dict({"packages": ["jsn"]})
