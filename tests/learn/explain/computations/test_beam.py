"""The numbers of `qkv explain beam`."""

from __future__ import annotations

from itertools import product
from math import log

from displayed import check, column

from qkv.learn.explain.computations import beam
from qkv.learn.explain.registry import explain
from qkv.learn.explain.toy import language_model, translator


def log_likelihood(words: list[str]) -> float:
    return sum(log(beam.NEXT[before][word]) for before, word in zip(["start", *words], words, strict=False))


def test_each_candidate_has_its_log_likelihood():
    explanation = beam.example()
    for step in explanation.steps[1:5]:
        (table,) = step.tables
        totals = column(table, "Σ log p")
        check(totals, [log_likelihood(row.split()) for row in table.rows])
        assert list(totals) == sorted(totals, reverse=True)
        assert [row[-1] for row in table.values].count("kept") <= 2


def test_the_beam_finds_the_best_output_and_greedy_decoding_does_not():
    explanation = beam.example()
    ended = [words for n in (1, 2, 3) for words in product(beam.WORDS[1:], repeat=n)]
    possible = [
        [*words, "</s>"]
        for words in ended
        if all(b in beam.NEXT[a] for a, b in zip(["start", *words], [*words, "</s>"], strict=True))
    ]
    best = max(possible, key=log_likelihood)
    table = explanation.table("both outputs")
    assert table.values[0][0] == " ".join(best) == "a cat sat </s>"
    check(column(table, "Σ log p"), [log_likelihood(best), log_likelihood(["the", "cat", "sat", "</s>"])])


def test_a_models_search_ends_where_its_steps_lead():
    for subject in (language_model(), translator()):
        explanation = explain("beam", subject)
        outputs = explanation.table("best outputs")
        last = {
            row: float(values[1])
            for step in explanation.steps[:-1]
            for table in step.tables
            for row, values in zip(table.rows, table.values, strict=True)
        }
        for row, values in zip(outputs.rows, outputs.values, strict=True):
            if row in last:
                check(float(values[1]), last[row], rounding=1e-4)
        assert outputs.rows[0] in last
