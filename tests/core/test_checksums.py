"""Checksums of tensors tell apart names, types, shapes and bytes."""

import pytest
import torch

from qkv.core import checksums


def test_every_difference_changes_the_checksum() -> None:
    x = torch.arange(6.0)
    others = [("b", x), ("a", x.view(2, 3)), ("a", x.long()), ("a", x + 1e-6), ("a", x[:0])]
    assert len({checksums.of("a", x), *(checksums.of(*other) for other in others)}) == 6
    assert checksums.of("a", x[::2]) == checksums.of("a", x[::2].contiguous())


def test_what_was_saved_is_checked() -> None:
    x = torch.ones(3)
    known = checksums.read(checksums.metadata({"x": x}), "file")
    checksums.check("x", x, known, "file")
    checksums.check("y", x, known, "file")  # not known: another program wrote it
    with pytest.raises(ValueError, match="file is damaged: the checksum of 'x' differs"):
        checksums.check("x", x + 1, known, "file")
    assert checksums.read(None, "file") == checksums.read({}, "file") == {}
    for text in ("{", "[]", '{"x": 1.5}'):
        with pytest.raises(ValueError, match="file is damaged: its checksums"):
            checksums.read({checksums.KEY: text}, "file")
