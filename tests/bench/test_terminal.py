"""The picture of a recorded command has the lines that stay on the screen, without progress bars."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

from bench.terminal import kept, main

RECORDED = (
    "Script started\n\x1b[?25lReading \u2026\r\n\r\x1b[2K\u280b tokenizer: reading\r\x1b[2K\u2819 tokenizer: done\r\n"
    "\x1b[1mTraining\x1b[0m now\r\n\r\x1b[2Kstep 1 of 2 \u2501\r\x1b[2Kstep 2 of 2 \u2501\u2501\r\n"
    "step 2 of 2  evaluation: loss 1\r\n\r\x1b[2Kstep 2 of 2 \u2501\u2501 0s left\r\nThe run is in x <y>\r\nScript done\n"
)


def test_progress_bars_leave_their_last_evaluation() -> None:
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in kept(RECORDED)]
    assert lines == ["Reading \u2026", "Training now", "step 2 of 2  evaluation: loss 1", "The run is in x <y>"]


def test_the_picture_has_their_text(tmp_path: Path) -> None:
    (tmp_path / "typescript").write_text(RECORDED, encoding="utf-8")
    assert main([str(tmp_path / "typescript"), str(tmp_path / "demo.svg")]) == 0
    picture = (tmp_path / "demo.svg").read_text(encoding="utf-8")
    text = unescape(re.sub(r"<[^>]*>", " ", picture)).replace("\xa0", " ")
    assert "$ qkv demo" in text and "The run is in x <y>" in text and "tokenizer" not in text
    assert not re.search(r"@font-face|url\(.?http|cdnjs", picture), "the picture needs no request"
