"""Writes rouge_golden.json: what rouge-score 0.1.2 makes of some texts (pip install rouge-score)."""

from __future__ import annotations

import json
from pathlib import Path

from rouge_score import rouge_scorer  # type: ignore[import-not-found]

CASES = [
    ("the cat sat on the mat", "the cat lay on the mat"),
    ("oslo beat turin 3 to 1", "turin beat oslo 3 to 1"),
    ("", "something"),
    ("A b, c! D-e (f) 1,000", "a b c d e f 1000"),
    ("a a a b", "a b b"),
    ("police killed the gunman", "the gunman police killed"),
    ("Zürich ist schön", "zürich war schön"),
    ("one", "one"),
    ("x y", "y x"),
    (
        "The quick brown fox jumps over the lazy dog and runs.",
        "A quick dog jumps over the brown fox, and the fox runs!",
    ),
]

if __name__ == "__main__":
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"])
    found = [
        {"output": a, "truth": b, **{name: round(one.fmeasure, 12) for name, one in scorer.score(b, a).items()}}
        for a, b in CASES
    ]
    path = Path(__file__).with_name("rouge_golden.json")
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
