"""What `qkv doctor` says of measured speeds."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from qkv.learn.doctor import speed
from qkv.learn.doctor.check import DoctorCheck


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle machine of 4 cores at 2.5 GHz that reaches 400 GFLOP/s in fp32 and half as much in bf16."""
    flops = {torch.float32: 400e9, torch.bfloat16: 200e9}
    monkeypatch.setattr(speed, "peak_flops", lambda device, dtype: flops[dtype])
    monkeypatch.setattr(speed, "bandwidth", lambda device: 2e10)
    monkeypatch.setattr(speed, "bf16_instructions", lambda device: "avx512_bf16")
    monkeypatch.setattr(speed.psutil, "cpu_freq", lambda: SimpleNamespace(current=2500.0), raising=False)
    monkeypatch.setattr(speed.threads, "usable_cores", lambda: 4)
    monkeypatch.setattr(speed.threads, "is_busy", lambda: False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")


def checks() -> dict[str, DoctorCheck]:
    return {check.name: check for check in speed.checks(1.5)}


def test_speeds_beside_what_the_hardware_should_reach() -> None:
    results = checks()
    assert results["import of PyTorch"].value == "1.5 s"
    assert results["fp32 products"].value == "400 GFLOP/s with 4 threads; about 320 expected of this CPU"
    assert results["memory"].value == "20.0 GB/s read: at most 40 tokens/s from a model of GPT-2's size in fp32"
    assert results["fp32 products"].status == results["memory"].status == "ok"
    assert results["bf16 products"].value == "200 GFLOP/s, 0.5 times fp32" and results["bf16 products"].status == "note"


def test_slow_products_and_memory_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "peak_flops", lambda device, dtype: 1e11)
    monkeypatch.setattr(speed, "bandwidth", lambda device: 1e9)
    for check in (checks()["fp32 products"], checks()["memory"]):
        assert check.status == "note" and "throttled" in check.remedy
    monkeypatch.setattr(speed.threads, "is_busy", lambda: True)
    assert "other programs use the cores" in checks()["fp32 products"].remedy


def test_an_unknown_clock_promises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed.psutil, "cpu_freq", lambda: None)
    assert checks()["fp32 products"] == DoctorCheck("speed", "fp32 products", "400 GFLOP/s with 4 threads")


def test_a_slow_import() -> None:
    check = speed._import(25.0)
    assert check.status == "note" and "local disk" in check.remedy


def test_a_gpu_beside_its_data_sheet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100 80GB HBM3")
    monkeypatch.setattr(speed, "peak_flops", lambda device, dtype: 7e14)
    check = speed._gpu(torch.device("cuda"))
    assert check.status == "ok" and check.value.endswith("20 GB/s read; its data sheet says 989 and 3,350")
    monkeypatch.setattr(speed, "peak_flops", lambda device, dtype: 1e14)
    assert speed._gpu(torch.device("cuda")).status == "note"
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla V100-SXM2-16GB")
    assert speed._gpu(torch.device("cuda")).value == "100 TFLOP/s in bf16, 20 GB/s read"
