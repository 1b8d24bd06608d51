from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from qkv.core.batch import IGNORE
from qkv.data.batching.settings import Batching
from qkv.data.loader.stream import stream
from qkv.data.readers.image_captions import Captions
from qkv.data.source import SPLITS, Skipped
from qkv.data.synthetic.shapes import Scenes
from qkv.data.task import Item, RandomContext
from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.words_chars_bytes import Word
from qkv.nn.layers.patches import Patches
from qkv.runs.tasks.captioning.task import Caption

SEEN = Patches(image=(16, 16), patch=(8, 8), before=0)
PICTURE = np.full((3, 20, 30), 99, np.uint8)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(Word(), ["what color is it ?", "a red circle", "a blue square"])


def items(tokenizer: Tokenizer, *texts: tuple[str, str], **fields: int) -> list[Item | Skipped]:
    task = Caption(mean=(0.0,) * 3, std=(1.0,) * 3, **fields).resolve(Scenes(), tokenizer, SEEN)
    examples = [{"image": PICTURE, "question": asked, "answer": answer} for asked, answer in texts]
    return task.items(examples, tokenizer, RandomContext(np.random.default_rng(0), True))


def test_a_caption_is_learned_from_its_first_word_to_its_end(tokenizer: Tokenizer) -> None:
    (item,) = items(tokenizer, ("", "a red circle"))
    assert isinstance(item, Item) and item.arrays["ids"].shape == (3, 16, 16) and item.tokens == 4
    start = tokenizer.eos_id if tokenizer.bos_id is None else tokenizer.bos_id
    words = tokenizer.encode("a red circle")
    assert item.arrays["target"].tolist() == [start, *words]
    assert item.labels is not None and item.labels.tolist() == [*words, tokenizer.eos_id]


def test_a_question_is_read_and_only_its_answer_is_learned(tokenizer: Tokenizer) -> None:
    (item,) = items(tokenizer, ("what color is it ?", "red"))
    assert isinstance(item, Item) and item.labels is not None
    asked, answer = tokenizer.encode("what color is it ?"), tokenizer.encode("red")
    assert item.arrays["target"].tolist()[1:] == [*asked, tokenizer.eos_id, *answer]
    assert item.labels.tolist() == [IGNORE] * (len(asked) + 1) + [*answer, tokenizer.eos_id]


def test_what_is_too_long_or_says_nothing_is_counted(tokenizer: Tokenizer) -> None:
    assert items(tokenizer, ("", "a red circle"), max_length=4) == ["over-long"]
    assert items(tokenizer, ("what color is it ?", "")) == ["with an empty answer"]
    assert isinstance(items(tokenizer, ("", "a red circle"), max_length=5)[0], Item)


def test_batches_of_pictures_and_words(tokenizer: Tokenizer) -> None:
    source = Scenes(size=(16, 16), train=40)
    task = Caption().resolve(source, tokenizer, SEEN)
    assert set(task.texts({"question": "", "answer": "a"})) == {"a"}
    with stream(source, tokenizer, Batching(tokens=200, workers=0), seq2seq=True, task=task) as batches:
        batch = next(batches)
    assert batch.labels is not None and batch.inputs["ids"].ndim == 4
    assert batch.inputs["target"].shape == batch.labels.shape
    assert batch.inputs["target_layout"].shape[1] == batch.labels.shape[1]
    assert batch.counts["loss"] == int((batch.labels != IGNORE).sum())
    assert batch.slots == batch.rows * (4 + batch.labels.shape[1]) <= 200


def test_what_is_said_of_a_picture_is_held_out_with_it(tmp_path: Path) -> None:
    for i in range(60):
        Image.new("RGB", (2, 2)).save(tmp_path / f"{i}.png")
    lines = [{"image": f"{i % 60}.png", "answer": f"it is {i}"} for i in range(180)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    source = Captions(path=str(tmp_path / "a.jsonl"))
    seen = {split: [one["image"].name for one in source.examples(split)] for split in SPLITS}
    assert [len(names) for names in seen.values()] == [144, 18, 18] and not set(seen["train"]) & set(seen["test"])


def test_pictures_and_sentences_of_the_users_own(tmp_path: Path) -> None:
    Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
    lines = [
        {"image": "a.png", "text": {"en": "a dog"}},
        {"image": "a.png", "text": {"en": " no "}, "question": "is it a cat ?"},
        {"image": "a.png", "text": {"en": " "}},
        {"image": "b.png", "text": {"en": "a cat"}},
        {"image": "a.png"},
    ]
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    source = Captions(path=str(path), validation_path=str(path), test_path=str(path), answer_field="text.en")
    table = source.table("train")
    first, second = table[0], table[1]
    assert isinstance(first, dict) and first["answer"] == "a dog" and first["question"] == ""
    assert isinstance(second, dict) and (second["question"], second["answer"]) == ("is it a cat ?", "no")
    assert table[2] == "with an empty answer"
    with pytest.raises(ValueError, match=r"line 4: there is no picture .*b\.png'; set data\.images to its folder"):
        table[3]
    with pytest.raises(ValueError, match=r"line 5, has no text 'text\.en'"):
        table[4]
    with pytest.raises(ValueError, match=r"give data\.path"):
        Captions().table("train")
