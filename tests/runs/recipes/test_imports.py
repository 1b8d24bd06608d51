"""Modules from outside qkv: which files a name means, and that nothing runs before it may."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from qkv.runs.recipes.imports import files_of, import_module, imports_of, missing


def test_the_files_of_a_module_are_found_without_running_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "unrun_package" / "inner"
    inner.mkdir(parents=True)
    for file in (inner.parent / "__init__.py", inner / "__init__.py", inner / "parts.py"):
        file.write_text("raise AssertionError('it ran')")
    monkeypatch.chdir(tmp_path)
    found = [inner.parent / "__init__.py", inner / "__init__.py", inner / "parts.py"]
    assert files_of("unrun_package.inner.parts") == found
    assert files_of(str(inner / "parts.py")) == found[2:]
    assert files_of("unrun_package.nothing") == files_of("no.such") == []
    assert not any(name.startswith("unrun_package") for name in sys.modules)


@pytest.mark.parametrize("name", ["json.py", "sys.py"])
def test_a_file_is_not_taken_for_a_module_of_its_name(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("")
    assert missing([str(tmp_path / name), name.removesuffix(".py")]) == (str(tmp_path / name),)
    with pytest.raises(ValueError, match=f"the module {name.removesuffix('.py')} is .*; rename the file"):
        import_module(str(tmp_path / name))


def test_imports_are_a_list_of_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert imports_of({"imports": "a.b"}) == ("a.b",) and imports_of({}) == imports_of(None) == ()
    assert imports_of({"imports": ["p.py", "p.py", "~no-such-user/q.py"]})[0] == str(tmp_path / "p.py")
    for wrong in (5, [5], [""]):
        with pytest.raises(ValueError, match="imports is a list of modules"):
            imports_of({"imports": wrong})
