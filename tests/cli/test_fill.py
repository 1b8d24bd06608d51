"""`qkv fill`: candidates for each mask, printed or as JSON."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from test_predict_by_head import of_hub

from qkv.cli import main

TEXTS = ["Ada lives in [MASK].", "[MASK] plays the [MASK] , and Ben lives [MASK] Norway", "[MASK]"]


def test_candidates_are_printed_or_json_and_texts_without_a_mask_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    *_, run = of_hub(tmp_path, "BertForMaskedLM")
    assert main(["fill", str(tmp_path), "--top-k", "2", "--json", *TEXTS[:2], " "]) == 0
    one, two, blank = map(json.loads, capsys.readouterr().out.splitlines())
    assert (one["text"], one["filled"]) == (TEXTS[0], run.fill(TEXTS)[0].text)
    assert [len(mask) for mask in two["masks"]] == [2, 2, 2]
    assert set(two["masks"][0][0]) == {"token", "id", "probability"}
    assert blank == {"text": " ", "filled": None, "masks": []}
    lines = f"{TEXTS[0]}\n\n{TEXTS[1]}\n".encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert main(["fill", str(tmp_path)]) == 0
    printed = capsys.readouterr().out.split("\n")
    assert printed[0].endswith(f"\t{one['filled']}") and printed[1] == "" and len(printed) == 1 + 1 + 3 + 1
    for given, said in (
        ("no mask", "text 1, 'no mask': it has no mask; write [MASK] in place of a token"),
        ("[MASK] ada" * 40, "context of 32"),
    ):
        assert main(["fill", str(tmp_path), given]) == 2
        assert said in capsys.readouterr().err
    assert main(["fill", str(tmp_path), "[MASK]", "", "no"]) == 2
    told = capsys.readouterr()
    assert "text 3, 'no': it has no mask" in told.err and not told.out
    assert main(["fill", str(tmp_path), "[MASK]", "--top-k", "0"]) == 2
    assert "top_k must be at least 1, not " in capsys.readouterr().err
