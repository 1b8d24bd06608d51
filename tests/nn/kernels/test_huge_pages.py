"""Transparent huge pages for large tensors."""

import sys
from typing import Any

import pytest
import torch

from qkv.nn.kernels import huge_pages
from qkv.nn.kernels.huge_pages import PAGE, prefer_huge_pages


@pytest.fixture
def advised(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Addresses and lengths passed to `madvise`."""
    asked = []

    class Library:
        @staticmethod
        def madvise(begin: Any, length: Any, advice: int) -> None:
            assert advice == 14
            asked.append((begin.value, length.value))

    monkeypatch.setattr(huge_pages, "_libc", Library)
    monkeypatch.setattr(sys, "platform", "linux")
    return asked


def test_whole_pages_within_the_tensor_are_asked_for(advised: list[tuple[int, int]]) -> None:
    tensor = torch.empty(3 * PAGE, dtype=torch.uint8)
    prefer_huge_pages(tensor)
    ((begin, length),) = advised
    assert begin % PAGE == 0 and length % PAGE == 0 and length >= 2 * PAGE
    assert tensor.data_ptr() <= begin and begin + length <= tensor.data_ptr() + tensor.nbytes


def test_small_tensors_and_other_systems_are_left_alone(
    advised: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer_huge_pages(torch.empty(PAGE, dtype=torch.uint8))
    prefer_huge_pages(torch.empty(3 * PAGE, dtype=torch.uint8, device="meta"))
    monkeypatch.setattr(sys, "platform", "darwin")
    prefer_huge_pages(torch.empty(3 * PAGE, dtype=torch.uint8))
    assert not advised


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has MADV_HUGEPAGE")
def test_the_tensor_can_be_used() -> None:
    tensor = torch.empty(3 * PAGE // 4)
    prefer_huge_pages(tensor)
    assert torch.equal(tensor.fill_(1.5), torch.full((3 * PAGE // 4,), 1.5))
