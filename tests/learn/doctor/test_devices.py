"""What `qkv doctor` says of processors, memory and GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from qkv.learn.doctor import devices


def test_this_machine() -> None:
    checks = {check.name: check for check in devices.checks()}
    assert list(checks)[:4] == ["processor", "vector instructions", "bf16", "memory"]
    assert "core" in checks["processor"].value and "free of" in checks["memory"].value


def test_the_processor_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: A Fast One @ 9 GHz\nflags\t\t: fpu\n", encoding="utf-8")
    monkeypatch.setattr(devices, "CPU_INFO", info)
    assert devices.processor() == "A Fast One @ 9 GHz"
    monkeypatch.setattr(devices, "CPU_INFO", tmp_path / "missing")
    assert devices.processor()


def test_without_avx2_everything_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    monkeypatch.setattr(devices.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    check = devices._vectors()
    assert check.status == "note" and "neither AVX2 nor AVX-512" in check.value and "-cpu host" in check.remedy
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    monkeypatch.setattr(devices, "cpu_features", lambda: {"avx2"})
    check = devices._vectors()
    assert check.status == "note" and check.remedy == "unset ATEN_CPU_CAPABILITY, which is 'default'"


def test_without_bf16_models_train_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "bf16_instructions", lambda device: None)
    check = devices._bf16()
    assert check.status == "note" and "train in fp32" in check.value
    monkeypatch.setattr(devices, "bf16_instructions", lambda device: "amx_bf16")
    assert devices._bf16() == devices.DoctorCheck("devices", "bf16", "native (amx_bf16)")


def test_little_free_memory_is_a_note_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "available", lambda device: 2**30)
    check = devices._memory()
    assert check.status == "note" and check.value.startswith("1.0 GiB free of") and "qkv cost fit" in check.remedy


def test_a_gpu_that_pytorch_can_not_use_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(devices, "NVIDIA_DRIVER", tmp_path)
    monkeypatch.setattr(torch.version, "cuda", None)
    check = devices._no_gpu()
    assert check.status == "problem" and "built without CUDA" in check.value and "pip install" in check.remedy
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    check = devices._no_gpu()
    assert check.status == "problem" and "nvidia-smi" in check.remedy
    monkeypatch.setattr(devices, "NVIDIA_DRIVER", tmp_path / "missing")
    assert devices._no_gpu().value == "none"


def test_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda i: f"NVIDIA {i}")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda i: (70 * 2**30, 80 * 2**30))
    monkeypatch.setattr(torch, "ones", lambda n, device: torch.zeros(n))
    check = devices._gpu(1)
    assert (check.name, check.value, check.status) == ("GPU cuda:1", "NVIDIA 1, 70.0 GiB free of 80.0 GiB", "ok")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda i: (2**30, 80 * 2**30))
    assert devices._gpu(0).status == "note"

    def fails(n: int, device: str) -> torch.Tensor:
        raise RuntimeError("no kernel image is available for execution on the device\nCUDA kernel errors …")

    monkeypatch.setattr(torch, "ones", fails)
    check = devices._gpu(0)
    assert check.status == "problem" and check.value.endswith(
        "no kernel image is available for execution on the device"
    )
