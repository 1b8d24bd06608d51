"""The task `see`: questions about pictures, and captions, by one decoder that reads the picture before the question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from ....core.batch import IGNORE, Batch
from ....core.metrics.base import MeasuredModel
from ....data.batching.numpy_batch import Array
from ....data.media import given
from ....data.media.images import Color
from ....data.source import Example, Source
from ....data.task import Item
from ....data.tokenizers.protocol import Encoder
from ....data.tokenizers.tokenizer import Tokenizer
from ....nn.layers.embedding import Input
from ....nn.layers.patches import Patches
from ....nn.models.joint import Joint, Medium, Tower
from ..media import MediumReader, TextWithFiles, arrays, asked
from ..pictures import with_channels
from ..prediction import Prediction, TrainedModel, parts_of
from ..prediction_batches import in_parts
from .task import Caption

NAME, MARKER = "image", "<image>"


class See(Caption, kind="see"):
    """The examples of `caption` for a decoder with a joint input, which reads

        start + <image> … <image> + question + end + answer + end

    with the vectors of the picture in the places of `<image>`. Where a question has an `<image>` itself, the picture stands
    there.

    learns: "answer" learns the answer alone, "all" the question too.
    place:  the id of `<image>`, from the tokenizer.
    """

    special: ClassVar[tuple[str, ...]] = (MARKER,)

    learns: Literal["answer", "all"] = "answer"
    place: int | None = Field(default=None, ge=0)

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        medium = medium_of(inputs)
        if medium is None:
            raise ValueError(
                f"the task {self.kind!r} needs a model whose decoder reads pictures, such as model.preset=joint; for an "
                "encoder of pictures and a decoder of text, take task.kind=caption"
            )
        patches = medium.reads.stack.embedding if isinstance(medium.reads, Tower) else medium.reads
        task = super().resolve(source, tokenizer, patches)
        path = "stack.embedding.image" if isinstance(medium.reads, Tower) else "image"
        tokens, place = medium.reads.replace({path: task.size}).n_tokens, place_of(tokenizer)
        return task.replace({"tokens": tokens, "place": place})

    def model_changes(self, tokenizer: Encoder | None) -> dict[str, Any]:
        return {"decoder.embedding.media.0.token": self.place}

    @property
    def longest(self) -> int:
        return self.max_length + self.tokens

    def prompt(self, question: Sequence[int], tokenizer: Encoder) -> list[int]:
        """Return what the decoder reads before the answer: the picture at the first `<image>`, or before the question.

        Raises ValueError if the question has a second one.
        """
        place = place_of(tokenizer) if self.place is None else self.place
        marks = [i for i, token in enumerate(question) if token == place]
        if len(marks) > 1:
            raise ValueError(
                f"the question has {len(marks)} {MARKER} and one picture; write {MARKER} once, or leave it out"
            )
        at = marks[0] if marks else 0
        before, after = question[:at], question[at + len(marks) :]
        start, *asked = super().prompt([*before, *after], tokenizer)  # a picture alone is a caption's prompt
        return [start, *before, *[place] * self.tokens, *after, *asked[-1:]]

    def media_readers(self, tokenizer: Tokenizer) -> tuple[MediumReader, ...]:
        """How the picture of a question is read."""
        place = place_of(tokenizer) if self.place is None else self.place
        color: Color = "gray" if self.channels == 1 else "rgb"

        def read(file: object) -> Array:
            pixels = with_channels(given.picture(file, color, self.bits or 16), self.channels)
            return self.normalize(self.resize(pixels, given.name_of(file, "picture")))

        return (MediumReader(NAME, MARKER, place, read, lambda _: self.tokens),)

    def framed(self, ids: Sequence[int], tokenizer: Encoder) -> list[int]:
        """`prompt` with one token in the place of the picture."""
        return self.replace({"tokens": 1}).prompt(ids, tokenizer)

    def item_of(self, picture: Array, ids: Sequence[int], prompt: int, about: Example) -> Item:
        learned = [IGNORE if token == self.place else token for token in ids[1:]]
        if self.learns == "answer":
            learned[: prompt - 1] = [IGNORE] * (prompt - 1)
        whole = np.array(ids[:-1], np.int64)
        about = {**about, "prompt": prompt}
        return Item({"ids": whole}, np.array(learned, np.int64), example=about, media={NAME: picture[None]})

    def generated(self, model: MeasuredModel, pictures: Tensor, prompts: Sequence[list[int]], **options: Any) -> Tensor:
        ids: Tensor = model.generate(prompts, media={NAME: pictures}, **options)
        return ids

    def pictures_of(self, batch: Batch) -> Tensor:
        pictures: Tensor = batch.inputs["media"][NAME]
        return pictures

    def prompts_of(self, batch: Batch) -> list[list[int]]:
        rows = zip(batch.inputs["ids"].tolist(), batch.texts, strict=True)
        return [row[: about["prompt"]] for row, about in rows]


def medium_of(inputs: Input) -> Medium | None:
    """The pictures that a joint input reads as its first medium."""
    medium = inputs.media[0] if isinstance(inputs, Joint) else None
    reads = None if medium is None else medium.reads
    patches = reads.stack.embedding if isinstance(reads, Tower) else reads
    return medium if medium is not None and medium.name == NAME and isinstance(patches, Patches) else None


def place_of(tokenizer: Encoder | None) -> int:
    """The id of the placeholder. Raises ValueError for a tokenizer without one."""
    place = tokenizer.raw.token_to_id(MARKER) if isinstance(tokenizer, Tokenizer) else None
    if place is None:
        raise ValueError(f"the tokenizer has no token {MARKER}, the place of a picture; name it in tokenizer.special")
    return int(place)


@See.predicts
def predict(task: See, trained: TrainedModel, lines: Sequence[str], **_: Any) -> Iterator[Prediction]:
    """Generate a text for each line FILE or FILE<tab>QUESTION, or for each question with its picture beside it, as in
    evaluation.

    Raises ValueError if a file holds no picture, or a question leaves no room for an answer.
    """
    tokenizer = trained.words
    for part in in_parts(lines):
        questions = [question_of(line) for line in part]
        prompts, media = asked(task, questions, tokenizer)
        pictures = torch.from_numpy(np.stack(arrays(one[NAME][0] for one in media))).to(trained.model.device)
        texts = task.written(trained.model, pictures, prompts, tokenizer)
        for line, question, text in zip(part, questions, texts, strict=True):
            shown = text if isinstance(line, TextWithFiles) else f"{parts_of(line)[0]}: {text}"
            fields = {"question": question.replace(MARKER, "", 1).strip(), "output": text}
            yield Prediction(line, text, shown, fields)


def question_of(line: str) -> TextWithFiles:
    """A question with its picture, of a line FILE<tab>QUESTION."""
    if isinstance(line, TextWithFiles):
        return line
    path, *question = parts_of(line)
    text = " ".join(question).strip()
    return TextWithFiles(text if MARKER in text else MARKER + text, {NAME: (path,)})
