"""Jobs that wait together are computed as one batch; one that fails harms no other."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from qkv.serving.engine import jobs
from qkv.serving.engine.jobs import Job, Jobs, alone, run_together


def lengths(texts: Sequence[str]) -> list[int]:
    if "" in texts:
        raise ValueError(f"text {texts.index('') + 1} is empty")
    return [len(text) for text in texts]


def waiting(*several: Job) -> Jobs:  # type: ignore[type-arg]
    made = Jobs()
    for job in several:
        made.add(job)
    return made


def test_jobs_of_one_kind_are_taken_together_and_the_others_keep_their_order() -> None:
    first, other, second, by_itself = (Job(lengths, ["a"], kind) for kind in ("a", "b", "a", None))
    queue = waiting(first, other, second, by_itself)
    assert queue.take() == [first, second] and queue.take() == [other]
    assert queue.take() == [by_itself] and len(queue) == 0 and queue.take() == []


def test_a_batch_has_a_most_of_inputs_and_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MOST_JOINED", 4)
    large, small, also = Job(lengths, ["a"] * 3, "a"), Job(lengths, ["b"], "a"), Job(lengths, ["c"], "a")
    queue = waiting(large, small, also)
    assert queue.take() == [large, small] and queue.take() == [also]
    monkeypatch.setattr(jobs, "MOST_CHARACTERS", 5)
    huge, next_one = Job(lengths, ["a" * 9], "a"), Job(lengths, ["b"], "a")
    queue = waiting(huge, next_one)
    assert queue.take() == [huge] and queue.take() == [next_one]


def test_a_large_job_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MOST_CHARACTERS", 5)
    job = Job(lengths, ["a", "bb", "ccc", "d" * 9, "e", "f", "g", "h"], "a")
    pieces = job.pieces(3)
    assert [piece.inputs for piece in pieces] == [["a", "bb"], ["ccc"], ["d" * 9], ["e", "f", "g"], ["h"]]
    assert all(piece.kind == "a" for piece in pieces)


def test_cancelled_jobs_are_dropped() -> None:
    gone, there = Job(lengths, ["a"], "a"), Job(lengths, ["bc"], "a")
    assert gone.future.cancel()
    run_together(taken := waiting(gone, there).take())
    assert taken == [there] and there.future.result() == [2]


def test_a_failure_is_told_to_its_own_job_only() -> None:
    good, bad = Job(lengths, ["abc", "d"], "a"), Job(lengths, ["e", ""], "a")
    run_together(waiting(good, bad, Job(lengths, ["f"], "a")).take())
    assert good.future.result() == [3, 1]
    with pytest.raises(ValueError, match="text 2 is empty"):
        bad.future.result()


def test_a_job_alone_has_one_result() -> None:
    run_together(waiting(job := alone(lambda: "done")).take())
    assert job.future.result() == ["done"]
