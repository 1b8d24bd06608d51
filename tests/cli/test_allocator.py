"""The allocator's setting: it removes page faults, it can be left alone, and importing qkv does not touch it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from qkv.cli import allocator

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's setting; there is none here")

FAULTS = """
import resource, torch
{before}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def once():
    torch.ones(16 << 20)
for _ in range(20):  # glibc finds no place among what it keeps for the first ones: what it aligns needs some room to spare
    once()
start = faults()
for _ in range(5):
    once()
print(faults() - start)
"""


def faults(before: str, **env: str) -> int:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_", allocator.SETTING))}
    done = subprocess.run(
        [sys.executable, "-c", FAULTS.format(before=before)], capture_output=True, text=True, env=clean | env
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.slow
@glibc
def test_pages_are_kept() -> None:
    by_default = faults("import qkv, qkv.cli")
    assert by_default > 5000, "blocks of 64 MB are cleared anew each time"
    keep = "from qkv.cli.allocator import keep_pages; assert keep_pages()"
    assert faults(keep) < by_default / 20


@glibc
@pytest.mark.slow
def test_left_alone_when_asked() -> None:
    assert faults("from qkv.cli.allocator import keep_pages; assert not keep_pages()", QKV_ALLOCATOR="system") > 5000


@pytest.mark.parametrize("name, value", [("MALLOC_ARENA_MAX_", "1"), ("LD_PRELOAD", "/usr/lib/libjemalloc.so")])
def test_a_users_own_choice_stands(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    assert not allocator.keep_pages()


def test_the_command_line_sets_it_unless_told_not_to(monkeypatch: pytest.MonkeyPatch) -> None:
    from qkv.cli import main

    calls: list[bool] = []
    monkeypatch.setattr(allocator, "keep_pages", lambda: calls.append(True))
    assert main(["list", "recipes"]) == 0 and calls == [True]
    assert main(["--system-allocator", "list", "recipes"]) == 0 and calls == [True]
