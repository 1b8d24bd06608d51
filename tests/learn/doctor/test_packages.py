"""Versions that qkv can't work with are problems, and missing extras are named with their use."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from qkv.learn.doctor import packages

ROOT = Path(__file__).parents[3]


def test_this_installation_is_in_order() -> None:
    checks = list(packages.checks())
    assert [check.name for check in checks[:4]] == ["qkv", "Python", "torch", "libraries"]
    assert {check.status for check in checks} == {"ok"}


@pytest.mark.parametrize(
    ("installed", "works"),
    [("2.13.0+cpu", True), ("2.11", True), ("2.14.9", True), ("2.10.1", False), ("2.15.0", False), ("3.0", False)],
)
def test_versions_are_compared_by_number(monkeypatch: pytest.MonkeyPatch, installed: str, works: bool) -> None:
    monkeypatch.setattr(packages, "version", lambda name: installed)
    check = packages._required("torch<2.15,>=2.11")
    assert check.name == "torch" and (check.status == "ok") == works
    if not works:
        assert check.value == f"{installed}, and qkv works with <2.15,>=2.11"
        assert check.remedy == 'pip install "torch<2.15,>=2.11"'


def test_a_missing_library_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "mido":
            raise PackageNotFoundError(name)
        return "2.13.0"

    monkeypatch.setattr(packages, "version", version)
    monkeypatch.setattr(
        packages, "requires", lambda name: ["torch<2.15,>=2.11", "mido>=1.3", 'av>=14; extra == "video"']
    )
    checks = list(packages.checks())
    (problem,) = (check for check in checks if check.status == "problem")
    assert (problem.name, problem.value, problem.remedy) == ("mido", "not installed", 'pip install "mido>=1.3"')
    assert not any(check.name == "libraries" for check in checks)


def test_an_extra_that_is_not_installed_is_no_problem() -> None:
    check = packages._extra(packages.OptionalPart("video", ("json", "no_such_module.at_all"), "videos"))
    assert (check.name, check.value, check.status) == ("qkv[video]", "not installed: videos", "ok")
    assert check.remedy == "pip install 'qkv[video]'"
    assert packages._extra(packages.OptionalPart("video", ("json",), "videos")).value == "installed: videos"


def test_the_extras_match_the_project_and_the_installation_page() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {extra.name for extra in packages.EXTRAS}
    assert names == set(project["optional-dependencies"]) - {"dev", "all"}
    page = (ROOT / "docs" / "installation.md").read_text(encoding="utf-8")
    assert all(f"'.[{name}]'" in page for name in names)
