"""`qkv cost fit`."""

from __future__ import annotations

import pytest

from qkv.cli import main

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_what_fits_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "fit", "gpt2", "n_layers=2", "--for", "decoding", "--memory", "1GB"]) == 0
    rows = (line.split(" MiB ") for line in capsys.readouterr().out.splitlines() if " MiB  " in line)
    needed = {name.strip(): int(size) for name, size in (row[0].rsplit(maxsplit=1) for row in rows)}
    base = needed["as it is, in bf16"]
    assert needed["fp32"] > base > needed["--set cache=int8"] > needed["--set cache=int4"]
    assert base > needed["weights in int8"] > needed["weights in int4"] > needed["weights and cache in int4"]
    assert base > needed["n_kv_heads=4"] > needed["n_kv_heads=1"]
