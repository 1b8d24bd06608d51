"""Type checkers understand a user's script: the usual calls pass `mypy --strict` and pyright, and mistakes are found."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import preset_names
import pytest

import qkv
from qkv.generation.settings import GenerationOptions
from qkv.io.families import PRESETS
from qkv.io.families.preset_names import DualEncoderName, RecurrentName, TransformerName
from qkv.nn.attention.attend import AttendOptions, attend

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "tests" / "typing"
SOURCE = ROOT / "src"


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: the scripts of `tests/typing` and `docs/examples`, and README's code."""
    folder = tmp_path_factory.mktemp("user")
    for script in (*SCRIPTS.glob("*.py"), *(ROOT / "docs" / "examples").glob("*.py")):
        shutil.copy(script, folder)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    (folder / "readme.py").write_text("\n".join(blocks), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def mypy(scripts: Path, request: pytest.FixtureRequest) -> set[tuple[str, int]]:
    """File and line of each error of `mypy --strict`, with qkv as an installed package: its own code is not reported."""
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    (scripts / "mypy.ini").write_text(
        "[mypy]\nstrict = true\n[mypy-qkv.*]\nfollow_imports = silent\n", encoding="utf-8"
    )
    cache = request.config.cache.mkdir("typing") if request.config.cache else scripts / "cache"
    command = [sys.executable, "-m", "mypy", "--config-file=mypy.ini", f"--cache-dir={cache}", "."]
    result = subprocess.run(
        command, cwd=scripts, env={**os.environ, "MYPYPATH": str(SOURCE)}, capture_output=True, text=True
    )
    assert result.returncode in (0, 1), result.stdout + result.stderr
    print(result.stdout)
    errors = re.findall(r"^(\S+\.py):(\d+): error", result.stdout, re.MULTILINE)
    return {(name, int(line)) for name, line in errors}


@pytest.fixture(scope="module")
def pyright(scripts: Path) -> set[tuple[str, int]]:
    """File and line of each error of pyright, or of basedpyright in pyright's standard mode."""
    program = next((path for path in map(shutil.which, ("pyright", "basedpyright")) if path), None)
    if program is None:
        pytest.skip("pyright is not installed: `npm install --global pyright` or `pip install basedpyright`")
    settings = {"extraPaths": [str(SOURCE)], "typeCheckingMode": "standard"}
    (scripts / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [program, "--outputjson", "--pythonpath", sys.executable]
    result = subprocess.run(command, cwd=scripts, capture_output=True, text=True)
    assert result.returncode in (0, 1), result.stdout + result.stderr
    report: dict[str, Any] = json.loads(result.stdout)
    print(result.stdout)
    errors = [item for item in report["generalDiagnostics"] if item["severity"] == "error"]
    return {(Path(item["file"]).name, item["range"]["start"]["line"] + 1) for item in errors}


def mistakes() -> set[tuple[str, int]]:
    lines = (SCRIPTS / "mistakes.py").read_text(encoding="utf-8").splitlines()
    return {("mistakes.py", number) for number, line in enumerate(lines, start=1) if line.endswith("# wrong")}


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
@pytest.mark.slow
def test_a_checker_reports_the_mistakes_and_nothing_else(checker: str, request: pytest.FixtureRequest) -> None:
    reported: set[tuple[str, int]] = request.getfixturevalue(checker)
    assert reported == mistakes()


def test_presets_are_named_as_types() -> None:
    transformers, recurrent = set(get_args(TransformerName)), set(get_args(RecurrentName))
    towers = set(get_args(DualEncoderName))
    assert preset_names.PATH.read_text(encoding="utf-8") == preset_names.text(), (
        "a preset is new or gone: run `python tests/helpers/preset_names.py`"
    )
    assert transformers | recurrent | towers == set(PRESETS)
    assert len(PRESETS) == len(transformers) + len(recurrent) + len(towers)
    assert isinstance(qkv.preset("gpt2"), qkv.Transformer)
    assert all(qkv.preset(name).kind == "recurrent" for name in recurrent)


def test_options_match_the_functions() -> None:
    assert set(get_type_hints(GenerationOptions)) == set(qkv.Generation.model_fields)
    keywords = set(attend.__kwdefaults__)
    assert set(AttendOptions.__annotations__) == keywords - {"return_lse"}


def test_names_are_exported_statically() -> None:
    text = (SOURCE / "qkv" / "__init__.py").read_text(encoding="utf-8")
    names = re.findall(r"^    from \.\S+ import (\w+) as \1$", text, re.MULTILINE)
    assert sorted(names) == qkv.__all__
