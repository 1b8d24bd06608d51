"""`python -m bench fused`: the modules really run without the fused step, and a case that is not there is refused."""

from __future__ import annotations

import pytest
import torch
from bench.fused import CASES, SMALL, by_modules, main, table

import qkv
from bench import machine
from qkv.nn.kernels.native import decoding_step as native


@pytest.mark.slow
def test_every_case_is_measured_in_turns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--tokens", "2"]) == 0
    shown = capsys.readouterr().out
    assert all(f"| {case.name} | bf16 |" in shown for case in CASES)


@pytest.mark.skipif(not native.ready(), reason="there is no C++ compiler here")
def test_the_modules_run_without_the_fused_step(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, run = [], native.run
    monkeypatch.setattr(native, "run", lambda *about: (calls.append(1), run(*about)))
    model = qkv.build(qkv.preset("gpt2", **SMALL), seed=0).eval()
    with torch.inference_mode():
        cache = model.start(1)
        with by_modules():
            model.step(torch.zeros(1, 1, dtype=torch.long), cache)
        assert not calls
        model.step(torch.zeros(1, 1, dtype=torch.long), cache)
    assert calls == [1]


def test_a_ratio_is_the_median_of_the_turns_ratios() -> None:
    row = {"case": "plain", "precision": "fp32", "fused": [1.0, 2.0, 4.0], "modules": [3.0, 4.0, 4.0]}
    rows = [row | {"rows": rows, "threads": threads} for rows in (1, 16) for threads in (1, 2)]
    text = table({**machine.stamp(), "load_before": 0.0, "rounds": 3, "tokens": 32, "rows": rows})
    assert (
        "| 1 row, 1 thread | 1 row, 2 threads | 16 rows, 1 thread | 16 rows, 2 threads |\n|---|---|---:|---:|---:|---:|\n"
        in text
    )
    assert "| plain | fp32 | 2.00, 2.00 | 2.00, 2.00 | 2.00, 2.00 | 2.00, 2.00 |" in text


def test_words_that_no_case_has_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "nothing"])
    assert "no case has all of ['nothing']" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--rounds", "--tokens"])
def test_a_number_below_one_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--quick", option, "0"])
    assert "--rounds and --tokens take 1 or more" in capsys.readouterr().err
