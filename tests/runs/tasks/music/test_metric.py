"""The likelihood of a frame matches its words."""

from __future__ import annotations

import math

from music_pieces import PIECE, TOKENIZER, Uniform, items

from qkv.runs.tasks.music.task import Music


def test_the_likelihood_of_a_frame_matches_its_words() -> None:
    for longest in (16, 500):
        task = Music(longest=longest)
        metric = task.metric(TOKENIZER)
        for item in items(task):
            metric.evaluate(Uniform(), task.collate([item], 0).batch({}))
        words = sum(len(frame) + 1 for frame in PIECE)
        found = metric.compute()["frame_nll"]
        assert math.isclose(found.value, words / len(PIECE) * math.log(TOKENIZER.vocab_size), rel_tol=1e-6)
        assert "24 frames" in found.details
