"""Music as language: windows count every note once, frames have their likelihood, pieces are moved to other keys."""

from __future__ import annotations

import numpy as np
from music_pieces import PIECE, TOKENIZER, items

from qkv.core.batch import IGNORE
from qkv.data.media.note_names import frames_to_text
from qkv.runs.tasks.music.task import Music


def test_windows_count_every_word_once() -> None:
    whole = TOKENIZER.encode(frames_to_text(PIECE), bos=True, eos=True)
    for longest in (5, 16, 31, 500):
        made = items(Music(longest=longest))
        assert all(len(item.arrays["ids"]) <= longest for item in made)
        counted = [label for item in made for label in item.labels.tolist() if label != IGNORE]
        assert counted == whole[1:]


def test_training_moves_pieces_and_reads_a_part_of_long_ones() -> None:
    task = Music(longest=12, transpose=3)
    rows = [items(task, training=True, seed=seed)[0] for seed in range(40)]
    assert all(len(row.arrays["ids"]) == 12 for row in rows)
    assert all(TOKENIZER.unk_id not in row.arrays["ids"] for row in rows)
    assert len({tuple(row.arrays["ids"]) for row in rows}) > 20
    np.testing.assert_array_equal(rows[0].arrays["ids"][1:], rows[0].labels[:-1])
