"""`python -m bench products`: its readings and its table."""

from bench.products import CONTENDERS, QUICK, ROWS, main, measure, nbytes, table, weight_of

from bench import machine


def test_every_contender_is_measured_with_every_number_of_rows() -> None:
    (name, shape), *_ = QUICK.items()
    rows = measure(name, shape, rounds=1, mib=1)
    assert len(rows) == len(CONTENDERS) * len(ROWS) and all(row["us"] > 0 for row in rows)
    result = {"date": "2026-11-24", "machine": machine.describe(), "code": {"commit": "abc"}, "load_before": 0.0}
    text = table({**result, "versions": {"torch": "2"}, "threads": 1, "rounds": 1, "rows": rows})
    assert text.count("| tiny, 64 × 96 |") == len(CONTENDERS) and "python -m bench products" in text


def test_bytes_of_codes_and_scales() -> None:
    assert [nbytes(weight_of(format, 8, 128)) for format in ("fp32", "bf16", "int8", "int4")] == [4096, 2048, 1088, 576]


def test_quick_keeps_nothing(capsys) -> None:
    assert main(["--quick", "--threads", "1"]) == 0
    assert "| tiny, 64 × 96 | int4 | qkv, int8 activations |" in capsys.readouterr().out
