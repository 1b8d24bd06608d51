"""The baseline of sums: digits by ridge regression, then the rule."""

from __future__ import annotations

from qkv.data.any_digits import AnyDigits
from qkv.data.readers.jsonl import JsonLines
from qkv.runs.tasks.omni.baseline import ridge_by_rule
from qkv.runs.tasks.omni.task import Omni


def test_the_baseline_reads_digits_and_adds(task: Omni, source: AnyDigits) -> None:
    makers = {name: getattr(task, name) for name in task.media}
    examples = list(source.examples("test"))[:60]
    (found,) = ridge_by_rule(source, examples, makers)
    assert 0.25 < found.metrics["exact"] < 1.0
    words = source.replace({"forms": ("word",)})
    (known,) = ridge_by_rule(words, list(words.examples("test"))[:20], makers)
    assert known.metrics["exact"] == 1.0 and ridge_by_rule(JsonLines(), examples, makers) == []
