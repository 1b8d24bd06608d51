"""`python -m bench onednn`: its table."""

import pytest

from bench import onednn


def test_a_quick_run_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert onednn.main(["--quick"]) == 0
    printed = capsys.readouterr().out
    assert "| product with gradients, 64 × 32 × 32 |" in printed and "vocabulary 64, 128 tokens |" in printed
    assert "chosen here" in printed
