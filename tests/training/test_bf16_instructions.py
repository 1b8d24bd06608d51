"""Which devices have bf16 instructions, by their description."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from qkv.training import mixed_precision as native

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A CPU of which nothing is said yet; what is remembered of the real one is forgotten before and after."""
    native.bf16_instructions.cache_clear()
    monkeypatch.setattr(native, "CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict, raising=False)
    monkeypatch.setattr(torch.backends, "mkldnn", SimpleNamespace(is_available=lambda: True))
    yield tmp_path / "cpuinfo"
    native.bf16_instructions.cache_clear()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("flags\t\t: fpu sse avx2 avx512f avx512_bf16 amx_bf16 amx_tile", "amx_bf16"),
        ("flags\t\t: fpu sse avx2 avx512f avx512_bf16", "avx512_bf16"),
        ("flags\t\t: fpu sse avx2 avx512f avx512_fp16", None),
        ("Features\t: fp asimd sve svebf16 i8mm bf16", "svebf16"),
        ("Features\t: fp asimd bf16", "bf16"),
        ("Features\t: fp asimd", None),
    ],
)
def test_what_the_kernel_lists(unknown: Path, line: str, found: str | None) -> None:
    unknown.write_text(f"processor\t: 0\nmodel name\t: bf16 in a name is not an instruction\n{line}\n")
    assert native.bf16_instructions(CPU) == found


def test_what_pytorch_sees_counts_where_there_is_no_kernel_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"architecture": "arm64", "bf16": True, "sve": False})
    assert native.bf16_instructions(CPU) == "bf16"


def test_without_onednn_instructions_are_no_use(unknown: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown.write_text("flags : amx_bf16\n")
    monkeypatch.setattr(torch.backends, "mkldnn", SimpleNamespace(is_available=lambda: False))
    assert native.bf16_instructions(CPU) is None


@pytest.mark.parametrize(("supported", "found"), [(True, "compute capability 9.0"), (False, None)])
def test_gpus_name_their_compute_capability(
    monkeypatch: pytest.MonkeyPatch, supported: bool, found: str | None
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert native.bf16_instructions(torch.device("cuda")) == found


def test_others_have_not_been_measured() -> None:
    assert native.bf16_instructions(torch.device("mps")) is None
