"""Versions of Python, PyTorch and the libraries that qkv needs, and the extras that are installed."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from ...core.optional_libraries import EXTRAS, OptionalPart, is_installed
from .check import DoctorCheck

SECTION = "versions"


def checks() -> Iterator[DoctorCheck]:
    """Yield qkv, Python, PyTorch, each required library that is missing or of a wrong version, and each extra."""
    yield DoctorCheck(SECTION, "qkv", f"{version('qkv')} in {Path(__file__).parents[2]}")
    yield DoctorCheck(SECTION, "Python", f"{platform.python_version()} in {sys.prefix}")
    required = [line for line in requires("qkv") or () if "extra ==" not in line]
    wrong = [check for check in map(_required, required) if check.status != "ok"]
    torch = next(check for check in map(_required, required) if check.name == "torch")
    yield torch
    yield from (check for check in wrong if check.name != "torch")
    if not wrong:
        yield DoctorCheck(SECTION, "libraries", f"all {len(required)} that qkv needs, in versions that it works with")
    yield from map(_extra, EXTRAS)


def _required(requirement: str) -> DoctorCheck:
    """Check a requirement such as `torch<2.15,>=2.11`."""
    name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
    remedy = f'pip install "{requirement}"'
    try:
        installed = version(name)
    except PackageNotFoundError:
        return DoctorCheck(SECTION, name, "not installed", "problem", remedy)
    if not _meets(installed, requirement):
        wanted = requirement.removeprefix(name)
        return DoctorCheck(SECTION, name, f"{installed}, and qkv works with {wanted}", "problem", remedy)
    return DoctorCheck(SECTION, name, installed)


def _meets(installed: str, requirement: str) -> bool:
    """Whether a version meets all bounds `>=` and `<` of a requirement."""
    for sign, bound in re.findall(r"(>=|<)\s*([\d.]+)", requirement):
        if (_release(installed) >= _release(bound)) != (sign == ">="):
            return False
    return True


def _release(version: str) -> tuple[int, ...]:
    """The numbers of a version, without trailing zeros: 2.13.0+cpu is (2, 13)."""
    numbers = re.match(r"[\d.]*\d", version)
    parts = [] if numbers is None else [int(part) for part in numbers.group().split(".")]
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)


def _extra(extra: OptionalPart) -> DoctorCheck:
    name, missing = f"qkv[{extra.name}]", [module for module in extra.modules if not is_installed(module)]
    if missing:
        return DoctorCheck(SECTION, name, f"not installed: {extra.purpose}", "ok", f"pip install 'qkv[{extra.name}]'")
    return DoctorCheck(SECTION, name, f"installed: {extra.purpose}")
