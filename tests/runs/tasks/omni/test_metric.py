from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from qkv.core.batch import Batch
from qkv.data.tokenizers.tokenizer import train
from qkv.look.pictures import draw
from qkv.runs.tasks.omni.metric import OmniMetric
from qkv.runs.tasks.omni.numbers import PictureNumbers, SeriesNumbers, SoundNumbers

WAVE = (np.sin(np.arange(900) / 3).astype(np.float32), 8000)


class Fixed:
    """A task whose model answers "one" to everything."""

    media = ("image", "sound", "series")
    image = PictureNumbers(size=(4, 4), mean=(0.5,), std=(0.25,))
    sound = SoundNumbers(size=(8, 12), rate=8000, mean=(0.0,), std=(1.0,))
    series = SeriesNumbers(size=(1, 6), mean=(0.0,), std=(1.0,))

    def prompts_of(self, batch: Batch) -> list[list[int]]:
        return [[0]] * len(batch.texts)

    def written(self, model: Any, media: Any, prompts: Sequence[list[int]], tokenizer: Any) -> list[str]:
        return ["one"] * len(prompts)


class Model:
    def hidden(self, **inputs: Any) -> torch.Tensor:
        return torch.zeros(1, 1, 1)


def about(answer: str, **files: list[Any]) -> dict[str, Any]:
    return {"question": "?", "answer": answer, "files": files, "kinds": tuple(files)}


def test_parts_are_counted_by_what_a_question_has_and_shown_in_turn() -> None:
    pixels = np.zeros((1, 4, 4), np.uint8)
    texts = (
        *(about("one"), about("two"), about("one", image=[pixels]), about("two", sound=[WAVE])),
        *(
            about("one", series=[[1.0, 2.0]]),
            about("one", image=[pixels], sound=[WAVE]),
            about("two", image=[pixels] * 2),
        ),
    )
    metric = OmniMetric(train("word", ["one two"]), Fixed())
    metric.evaluate(Model(), Batch({"ids": torch.zeros(len(texts), 1)}, texts=texts))
    values = {name: value.value for name, value in metric.compute().items()}
    parts = {"text": 0.5, "image": 1.0, "sound": 0.0, "series": 1.0, "several": 0.5}
    assert values == {"exact": 4 / 7, **{f"exact_{name}": share for name, share in parts.items()}}
    shown = metric.samples(5)
    assert [len(one.get("picture", {}).get("pictures", ())) for one in shown] == [2, 1, 1, 1, 0]
    page = str(draw(shown[0]["picture"])) + str(draw(shown[1]["picture"]))
    assert all(part in page for part in ("data:image/png", "<audio", "data:audio/wav", "<svg"))
    assert metric.extremes() is not None
