"""Samples of music as piano rolls."""

from __future__ import annotations

from typing import Any

import torch
from music_pieces import TOKENIZER, Uniform, items
from torch import Tensor, nn

from qkv.look.pictures import draw
from qkv.runs.tasks.music.task import Music


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
