"""A lazy table knows its names before it imports what they stand for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from qkv.core.registry import LazyTable
from qkv.core.spec import Spec


def test_an_entry_is_made_once_and_when_it_is_first_read() -> None:
    made: list[str] = []
    table: LazyTable[int] = LazyTable()
    table.later("one", "json", lambda home: made.append(home.__name__) or 1)
    assert list(table) == ["one"] and "one" in table and len(table) == 1 and not made
    assert table["one"] == table.get("one") == 1 and made == ["json"]
    table["two"] = 2
    del table["one"]
    assert dict(table) == {"two": 2} and table.get("one") is None


class Late(Spec, role="late part of this test"):
    pass


def test_a_kind_is_imported_when_it_is_first_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "late_parts"
    package.mkdir()
    (package / "__init__.py").write_text("from . import part")
    (package / "part.py").write_text(
        "from qkv.core.spec import Spec\nfrom late_roles import Late\nclass Early(Late, kind='early'): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "late_roles", sys.modules[__name__])
    for kind in ("early", "never"):
        Late.kinds.later(kind, "late_parts")
    with pytest.raises(ValueError, match=r"kind 'early' is already late_parts\.part\.Early"):

        class Other(Late, kind="early"):
            pass

    assert type(Late.from_dict({"kind": "early"})).__name__ == "Early"
    with pytest.raises(ImportError, match="late_parts does not define never"):
        Late.kinds["never"]


def test_only_what_is_in_an_entrys_home_may_set_it() -> None:
    Late.kinds.later("taken", "qkv.core.batch")
    assert Late.kinds.is_later("taken", "qkv.core.batch") and not Late.kinds.is_later("taken", "qkv.core.batches")
