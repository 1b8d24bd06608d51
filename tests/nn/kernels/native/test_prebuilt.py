"""Wheels bring compiled kernels, and only those that this processor can run are loaded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from qkv.nn.kernels.native import prebuilt
from qkv.nn.kernels.native.compiler import compiler

ROOT = Path(__file__).parents[4]
V4, V3 = prebuilt.TARGETS["block_sparse"]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source whose libraries for all targets lie beside it."""
    path = tmp_path / "block_sparse.cpp"
    path.write_text("int one() { return 1; }")
    for target in (V3, V4):
        (tmp_path / prebuilt.file_name(path, target)).touch()
    monkeypatch.setattr(prebuilt, "supported", lambda: True)
    return path


def found(source: Path, flags: frozenset[str], monkeypatch: pytest.MonkeyPatch) -> str | None:
    monkeypatch.setattr(prebuilt, "processor_flags", lambda: flags)
    prebuilt.find.cache_clear()
    path = prebuilt.find(source)
    prebuilt.find.cache_clear()
    return None if path is None else path.name


def test_the_best_that_the_processor_can_run(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(source, V4.needs | {"amx_tile"}, monkeypatch) == prebuilt.file_name(source, V4)
    assert found(source, V3.needs | {"avx512f"}, monkeypatch) == prebuilt.file_name(source, V3)
    (source.parent / prebuilt.file_name(source, V4)).unlink()
    assert found(source, V4.needs, monkeypatch) == prebuilt.file_name(source, V3)


@pytest.mark.parametrize("missing", sorted(V3.needs))
def test_never_one_for_other_instructions(source: Path, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(source, V4.needs - {missing}, monkeypatch) is None


def test_a_processor_that_tells_nothing_gets_none(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(source, frozenset(), monkeypatch) is None
    monkeypatch.setattr(prebuilt, "supported", lambda: False)
    assert found(source, V4.needs, monkeypatch) is None


@pytest.mark.parametrize("name", ["block_sparse.cpp", "more.h"])
def test_never_one_of_another_source(source: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (source.parent / name).write_text("int one() { return 2; }")
    assert found(source, V4.needs, monkeypatch) is None


def test_every_source_has_targets() -> None:
    assert set(prebuilt.TARGETS) == {path.stem for path in Path(prebuilt.__file__).parent.glob("*.cpp")}


# -- building ---------------------------------------------------------------------------------------------------------------

CHECK = """
import json, torch, qkv
from qkv.nn.kernels.native import compiler
q, k, v = (torch.randn(1, 1024, 4, 32, generator=torch.Generator().manual_seed(0)).requires_grad_() for _ in range(3))
results = []
for backend in ("tiled", "reference"):
    out = qkv.attend(q, k, v, pattern=qkv.causal() & qkv.window(100), backend=backend)
    results.append([out, *torch.autograd.grad(out.square().sum(), (q, k, v))])
torch.testing.assert_close(*results, atol=1e-4, rtol=1e-4)
library = compiler.library("block_sparse")
print(json.dumps([qkv.__file__, compiler.compiler(), library and library._name]))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is built from, for nothing to be left in the working tree."""
    pytest.importorskip("setuptools", "77", reason="wheels are built by setuptools")
    root = tmp_path_factory.mktemp("project")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, root)
    shutil.copytree(ROOT / "docs" / "tour", root / "docs" / "tour")
    shutil.copytree(ROOT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so"))
    return root


def built(project: Path, hook: str, environment: dict[str, str]) -> Path:
    """The wheel that one of setuptools' hooks makes."""
    call = f"from setuptools.build_meta import {hook}; print({hook}('out'))"
    told = subprocess.run(
        [sys.executable, "-c", call],
        cwd=project,
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    return project / "out" / told.stdout.split()[-1]


def native(wheel: Path) -> list[str]:
    return [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]


@pytest.mark.slow
@pytest.mark.skipif(not prebuilt.supported() or compiler() is None, reason="wheels bring kernels for Linux on x86-64")
def test_a_wheel_runs_its_kernels_without_a_compiler(project: Path, tmp_path: Path) -> None:
    wheel = built(project, "build_wheel", {})
    assert wheel.name.endswith("-py3-none-linux_x86_64.whl")
    assert len(native(wheel)) == sum(map(len, prebuilt.TARGETS.values()))
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    bare = {
        "PYTHONPATH": str(tmp_path / "site"),
        "PATH": "",
        "QKV_CACHE": str(tmp_path / "cache"),
        "HOME": str(tmp_path),
    }
    told = subprocess.run(
        [sys.executable, "-c", CHECK], cwd=tmp_path, env=bare, check=True, capture_output=True, text=True
    )
    package, command, library = json.loads(told.stdout)
    assert Path(package).is_relative_to(tmp_path / "site") and command is None
    if V3.needs <= prebuilt.processor_flags():
        assert Path(library).is_relative_to(tmp_path / "site")
    assert not (tmp_path / "cache").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "hook, environment", [("build_wheel", {"QKV_PREBUILT": "0"}), ("build_wheel", {"PATH": "", "CXX": ""})]
)
def test_without_a_compiler_the_wheel_is_for_any_machine(project: Path, hook: str, environment: dict[str, str]) -> None:
    wheel = built(project, hook, environment)
    assert wheel.name.endswith("-py3-none-any.whl") and not native(wheel)


def test_an_editable_install_compiles_nothing(project: Path) -> None:
    assert not native(built(project, "build_editable", {}))
    assert not list((project / "src").rglob("*.so"))


@pytest.mark.parametrize("machine, told", [("x86_64", True), ("AMD64", True), ("aarch64", False), ("arm64", False)])
def test_only_compilers_for_x86_are_told_the_width_of_vectors(machine: str, told: bool) -> None:
    assert any("vector-width" in flag for flag in prebuilt.flags_for(machine)) == told
