"""The task `omni`: what a decoder with a joint input reads and learns of questions and conversations, and its prediction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field

from ....core.batch import IGNORE, Batch
from ....core.metrics.base import MeasuredModel, Metric
from ....core.metrics.baselines import Baseline
from ....data.source import Example, Skipped, Source
from ....data.task import Item, RandomContext, Task
from ....data.tokenizers.chat.messages import files_in, last_reply, text_of
from ....data.tokenizers.protocol import Encoder, TextDecoder
from ....data.tokenizers.tokenizer import Tokenizer
from ....nn.layers.embedding import Input
from ....nn.layers.patches import Patches
from ....nn.models.joint import Joint, MediaInputs, Medium, Tower
from ..media import MediumReader, arrays, asked, placed, stacked
from ..prediction import Prediction, TrainedModel
from ..prediction_batches import in_parts
from .baseline import ridge_by_rule
from .metric import OmniMetric
from .numbers import MediaNumbers, PictureNumbers, SeriesNumbers, SoundNumbers

_STATISTICS_SAMPLE = 300  # training examples from which mean and deviation are taken


class ReadExample(NamedTuple):
    """One example as tokens with a placeholder for each medium: the first of them are the prompt of the last answer."""

    ids: list[int]
    learned: list[int]
    prompt: int
    files: Mapping[str, Sequence[object]]
    answer: str


class Omni(Task, kind="omni"):
    """Examples with a "question" and an "answer", whose decoder reads

        start + question + end + answer + end

    or conversations with "messages", by the tokenizer's chat template. Media stand at the places `<image>`, `<sound>` and
    `<series>` of a question, which has them in lists of these names, or are parts of messages, such as
    `{"type": "image", "path": "7.png"}`.

    learns:     "answer" learns the answers and replies alone, "all" the rest of the text too.
    max_length: the most tokens of an example without media; longer ones are skipped and counted.
    image, sound, series: how media become numbers.
    media:      the names of the media, in the order of the model's; `places` are the ids of their placeholders, `vectors`
                the vectors of each.
    conversations: whether the training data are conversations.
    """

    pool: ClassVar[int] = 256
    needs_tokenizer: ClassVar[bool] = True
    special: ClassVar[tuple[str, ...]] = ("<image>", "<sound>", "<series>")
    recipe_defaults: ClassVar[dict[str, dict[str, Any]]] = {"objective": {"kind": "labels"}}

    learns: Literal["answer", "all"] = "answer"
    max_length: int = Field(default=128, ge=2)
    image: PictureNumbers = PictureNumbers()
    sound: SoundNumbers = SoundNumbers()
    series: SeriesNumbers = SeriesNumbers()
    media: tuple[str, ...] = ()
    places: tuple[int, ...] = ()
    vectors: tuple[int, ...] = ()
    conversations: bool = False

    # -- what it depends on ----------------------------------------------------------------------------------------------

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        if not isinstance(inputs, Joint):
            raise ValueError(
                f"the task {self.kind!r} needs a model that reads media between tokens, such as model.preset=joint"
            )
        assert isinstance(tokenizer, Tokenizer)
        task, examples = self, list(islice(source.examples("train", shuffle=True), _STATISTICS_SAMPLE))
        for medium in inputs.media:
            numbers = self._numbers_of(medium)
            values = [value for example in examples for value in files_of(example).get(medium.name, ())]
            task = task.replace({medium.name: numbers.measured(values)})
        sizes = [medium.reads.n_tokens or 0 for medium in inputs.media]
        names = tuple(medium.name for medium in inputs.media)
        places = tuple(tokenizer.id(f"<{name}>") for name in names)
        spoken = bool(examples) and "messages" in examples[0]
        fields = {"media": names, "places": places, "vectors": tuple(sizes), "conversations": spoken}
        return task.replace(fields)

    def _numbers_of(self, medium: Medium) -> MediaNumbers:
        """The settings of a medium, with the sizes that the model reads."""
        reads = medium.reads.stack.embedding if isinstance(medium.reads, Tower) else medium.reads
        numbers = getattr(self, medium.name, None)
        if not isinstance(numbers, MediaNumbers) or not isinstance(reads, Patches):
            raise ValueError(
                f"the task {self.kind!r} makes numbers of image, sound and series for patches, and this model reads "
                f"{medium.name} by {reads.kind}"
            )
        return numbers.of_model(reads)

    def model_changes(self, tokenizer: Encoder | None) -> dict[str, Any]:
        return {f"decoder.embedding.media.{i}.token": place for i, place in enumerate(self.places)}

    def media_readers(
        self, tokenizer: Tokenizer, random: np.random.Generator | None = None
    ) -> tuple[MediumReader, ...]:
        """How each kind of media is read; in training with `random` changes."""
        rows = zip(self.media, self.places, self.vectors, strict=True)
        return tuple(
            MediumReader(name, f"<{name}>", place, partial(getattr(self, name), random=random), lambda _, n=count: n)  # type: ignore[misc]
            for name, place, count in rows
        )

    # -- examples ----------------------------------------------------------------------------------------------------------

    def texts(self, example: Example) -> Iterator[str]:
        if "messages" in example:
            yield from map(text_of, json.loads(example["messages"]))
        else:
            yield from (example["question"], example["answer"])

    def check_fields(self, example: Example, source: Source | None = None) -> None:
        if not {"question", "answer"} <= example.keys() and "messages" not in example:
            raise ValueError(
                f"the task {self.kind} reads question and answer, or messages, and the data have {', '.join(example)}; "
                "choose another source, or name the field of conversations: data.messages=messages"
            )

    def item(self, example: Example, tokenizer: Encoder | None, randomness: RandomContext) -> Item | Skipped:
        assert isinstance(tokenizer, Tokenizer)
        read = self._conversation(example, tokenizer) if "messages" in example else self._question(example, tokenizer)
        if isinstance(read, Skipped):
            return read
        if len(read.ids) > self.max_length:
            return Skipped("over-long", str(example.get("where", "")))
        where = str(example.get("where", "an example"))
        readers = self.media_readers(tokenizer, randomness.generator if randomness.training else None)
        made = placed(read.ids, readers, read.files, where)
        learned = [read.learned[i] for i in made.origins]
        known = [all(token != place for place in self.places) for token in made.ids]
        labels = [
            token if said and seen else IGNORE for token, said, seen in zip(made.ids, learned, known, strict=True)
        ]
        prompt = next(i for i, origin in enumerate(made.origins) if origin >= read.prompt)
        about = {"where": where, "prompt": prompt, "answer": read.answer, "question": example.get("question", "")}
        about |= {"kinds": tuple(name for name in self.media if made.media.get(name)), "files": dict(read.files)}
        media = {name: np.stack(arrays(found)) for name, found in made.media.items()}
        whole = np.array(made.ids[:-1], np.int64)
        return Item({"ids": whole}, np.array(labels[1:], np.int64), example=about, media=media)

    def _question(self, example: Example, tokenizer: Tokenizer) -> ReadExample | Skipped:
        question, answer = tokenizer.encode_batch([example["question"], example["answer"]])
        if not answer:
            return Skipped("with an empty answer", str(example.get("where", "")))
        prompt = self.framed(question, tokenizer)
        assert tokenizer.eos_id is not None
        ids = [*prompt, *answer, tokenizer.eos_id]
        learned = [int(self.learns == "all")] * len(prompt) + [1] * (len(answer) + 1)
        return ReadExample(ids, learned, len(prompt), files_of(example), example["answer"])

    def _conversation(self, example: Example, tokenizer: Tokenizer) -> ReadExample | Skipped:
        """What is read up to the last reply."""
        messages = json.loads(example["messages"])
        last = last_reply(messages)
        if last is None:
            return Skipped("without a reply", str(example.get("where", "")))
        tools = {"tools": json.loads(example["tools"])} if "tools" in example else {}
        places = {name: f"<{name}>" for name in self.media}
        try:
            ids, learned = tokenizer.chat.row(messages[: last + 1], places=places, **tools)
        except ValueError as error:
            raise ValueError(f"{example.get('where', 'a conversation')}: {error}") from None
        end = max(i for i, said in enumerate(learned) if said) + 1
        start = max((i for i in range(end) if not learned[i]), default=-1) + 1
        said = [1] * end if self.learns == "all" else learned[:end]
        return ReadExample(ids[:end], said, start, files_in(messages[: last + 1]), text_of(messages[last]))

    def framed(self, ids: Sequence[int], tokenizer: Encoder) -> list[int]:
        """What the decoder reads before an answer. Raises ValueError if the tokenizer has no end token, and for a model that
        was trained on conversations."""
        if self.conversations:
            raise ValueError(
                "this run was trained on conversations, and not on questions alone; ask it with `qkv chat`, `qkv generate "
                "--chat` or run.chat"
            )
        end = tokenizer.eos_id
        if end is None:
            raise ValueError("answers need a tokenizer with an end-of-sequence token")
        return [end if tokenizer.bos_id is None else tokenizer.bos_id, *ids, end]

    def check_room(self, question: str, prompt: Sequence[int]) -> None:
        """Raise ValueError if a question leaves no room for an answer."""
        words = sum(token not in self.places for token in prompt)
        if words >= self.max_length:
            raise ValueError(
                f"the question {question[:60]!r} has {words} tokens with special tokens, and question and answer have room "
                f"for {self.max_length}; ask a shorter one"
            )

    # -- answers -----------------------------------------------------------------------------------------------------------

    def prompts_of(self, batch: Batch) -> list[list[int]]:
        """The tokens of each row before its last answer."""
        rows = zip(batch.inputs["ids"].tolist(), batch.texts, strict=True)
        return [row[: about["prompt"]] for row, about in rows]

    def written(
        self, model: MeasuredModel, media: MediaInputs | None, prompts: Sequence[list[int]], tokenizer: TextDecoder
    ) -> list[str]:
        """Generate an answer for each prompt, greedily, of at most `max_length` tokens with the words of its prompt."""
        width, ends = max(map(len, prompts)), _ends(tokenizer)
        words = [sum(token not in self.places for token in prompt) for prompt in prompts]
        limits = [max(self.max_length - count, 1) for count in words]
        options = {"media": media} if media else {}
        ids = model.generate(prompts, eos_id=ends, pad_id=ends[0], max_new_tokens=max(limits), **options)
        rows = (row[:n] for row, n in zip(ids[:, width:].tolist(), limits, strict=True))
        cut = ((row, next((i for i, token in enumerate(row) if token in ends), len(row))) for row in rows)
        return [tokenizer.decode(row[:end]) for row, end in cut]

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return OmniMetric(tokenizer, self)

    def baselines(self, source: Source, examples: Iterable[Example]) -> list[Baseline]:
        return ridge_by_rule(source, list(examples), {name: getattr(self, name) for name in self.media})


def _ends(tokenizer: Any) -> list[int]:
    """The tokens that end an answer: the tokenizer's, and that of its chat template."""
    with suppress(ValueError):  # no chat template
        return list(dict.fromkeys([tokenizer.eos_id, *tokenizer.chat.ends]))
    return [tokenizer.eos_id]


def files_of(example: Example) -> Mapping[str, Sequence[object]]:
    """The media of an example, by the names of their kinds."""
    if "messages" in example:
        return files_in(json.loads(example["messages"]))
    return {name: example[name] for name in ("image", "sound", "series") if name in example}


@Omni.predicts
def predict(task: Omni, trained: TrainedModel, lines: Sequence[str], **_: Any) -> Iterator[Prediction]:
    """Generate an answer for each question, with the files beside it at its places, as in evaluation.

    Raises ValueError if files and places differ in number, for a file that can't be read, and for a question without room
    for an answer.
    """
    tokenizer = trained.words
    for part in in_parts(lines):
        prompts, media = asked(task, part, tokenizer)
        found = {name: _moved(values, trained) for name, values in stacked(media).items()}
        for line, text in zip(part, task.written(trained.model, found, prompts, tokenizer), strict=True):
            yield Prediction(line, text, text, {"output": text})


def _moved(values: Any, trained: TrainedModel) -> Any:
    device = trained.model.device
    return [value.to(device) for value in values] if isinstance(values, list) else values.to(device)
