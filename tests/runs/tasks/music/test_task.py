"""Music as language: windows count every note once, frames have their likelihood, pieces are moved to other keys."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from qkv.core.batch import IGNORE
from qkv.data import train_tokenizer
from qkv.data.media.note_names import Frame, frames_to_text
from qkv.data.task import Item, RandomContext
from qkv.data.tokenizers.training.spec import TokenizerSpec
from qkv.look.pictures import draw
from qkv.runs.tasks.music.task import Music

PIECE: list[Frame] = [(64, 60), (), (67, 48), (66,)] * 6
TOKENIZER = train_tokenizer(TokenizerSpec.from_dict({"kind": "word"}), Music(transpose=3).texts({"frames": PIECE}))


def items(task: Music, training: bool = False, seed: int = 0) -> list[Item]:
    example = {"text": frames_to_text(PIECE), "frames": PIECE}
    return task.items([example], TOKENIZER, RandomContext(np.random.default_rng(seed), training))  # type: ignore[return-value]


class Uniform(nn.Module):
    """Gives every word the same probability."""

    def forward(self, ids: Tensor, **_: Any) -> Tensor:
        return torch.zeros(*ids.shape, TOKENIZER.vocab_size)


def test_windows_count_every_word_once() -> None:
    whole = TOKENIZER.encode(frames_to_text(PIECE), bos=True, eos=True)
    for longest in (5, 16, 31, 500):
        made = items(Music(longest=longest))
        assert all(len(item.arrays["ids"]) <= longest for item in made)
        counted = [label for item in made for label in item.labels.tolist() if label != IGNORE]
        assert counted == whole[1:]


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


def test_training_moves_pieces_and_reads_a_part_of_long_ones() -> None:
    task = Music(longest=12, transpose=3)
    rows = [items(task, training=True, seed=seed)[0] for seed in range(40)]
    assert all(len(row.arrays["ids"]) == 12 for row in rows)
    assert all(TOKENIZER.unk_id not in row.arrays["ids"] for row in rows)
    assert len({tuple(row.arrays["ids"]) for row in rows}) > 20
    np.testing.assert_array_equal(rows[0].arrays["ids"][1:], rows[0].labels[:-1])


def test_samples_are_drawn_as_piano_rolls() -> None:
    class Rising(Uniform):
        max_positions = None

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def generate(self, ids: Tensor, **options: Any) -> Tensor:
            new = torch.tensor([TOKENIZER.encode("E4 . G4 C3 .", eos=True)])
            return torch.cat([ids, new], 1)

    task = Music(prompt=2, goes_on=4)
    metric = task.metric(TOKENIZER)
    metric.evaluate(Rising(), task.collate(items(task), 0).batch({}))
    (sample,) = metric.samples(1)
    assert (sample["source"], sample["output"]) == ("E4 C4 . .", "E4 . G4 C3 .")
    assert sample["picture"]["prompt"] == 2 and sample["picture"]["made"][-1] == (48, 3, 4)
    drawn = str(draw(sample["picture"]))
    assert drawn.count("<svg") == 2 and "data:audio/midi;base64,TVRoZ" in drawn
