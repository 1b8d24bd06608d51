"""A task of mteb with its own few pairs of texts."""

from __future__ import annotations

from typing import Any

import mteb
from datasets import Dataset
from mteb.abstasks.sts import AbsTaskSTS

TEXTS = (
    "the cat sat",
    "a mate of the cat:",
    "größer als gedacht",
    "the cats ate.",
    "on the mat,",
    "the cat and the mat,",
)


class MadeSTS(AbsTaskSTS):
    """Pairs of texts, scored by the letters that they share."""

    metadata = mteb.TaskMetadata(
        name="MadeSTS",
        dataset={"path": "made/made", "revision": "1"},
        description="made",
        reference=None,
        type="STS",
        category="t2t",
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="cosine_spearman",
        date=None,
        domains=None,
        task_subtypes=None,
        license=None,
        annotations_creators=None,
        dialect=None,
        sample_creation=None,
        bibtex_citation=None,
    )
    rows: tuple[tuple[str, str, float], ...] = ()

    def load_data(self, **options: Any) -> None:
        made = [(a, b, float(len(set(a) & set(b)) % 6)) for a in TEXTS for b in TEXTS if a < b]
        names = ("sentence1", "sentence2", "score")
        rows = [dict(zip(names, row, strict=True)) for row in self.rows or made]
        self.dataset, self.data_loaded = {"test": Dataset.from_list(rows)}, True
