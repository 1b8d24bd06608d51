"""Every part of the examination takes its turn."""

from __future__ import annotations

from qkv.learn.doctor.examination import examine


def test_the_sections_and_their_order() -> None:
    sections = list(dict.fromkeys(check.section for check in examine(measure=False)))
    assert sections == ["versions", "devices", "threads", "kernels", "storage"]
