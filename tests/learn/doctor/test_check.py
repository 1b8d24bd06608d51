"""Sizes as they are printed."""

from __future__ import annotations

from qkv.learn.doctor.check import gigabytes


def test_sizes_are_in_units_of_1024() -> None:
    assert (
        gigabytes(1.5 * 2**40) == "1,536.0 GiB" and gigabytes(3 * 2**29) == "1.5 GiB" and gigabytes(5 << 20) == "5 MiB"
    )
