from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import qkv
from qkv.core.batch import IGNORE
from qkv.data.any_digits import AnyDigits
from qkv.data.media import audio
from qkv.data.readers.jsonl import JsonLines
from qkv.data.task import Item, RandomContext
from qkv.data.tokenizers.tokenizer import Tokenizer
from qkv.io.families import preset
from qkv.runs.tasks.omni.task import Omni

STILL = RandomContext(np.random.default_rng(0), False)


def test_media_stand_between_the_words_and_answers_are_learned(
    task: Omni, source: AnyDigits, tokenizer: Tokenizer
) -> None:
    assert task.media == ("image", "sound", "series") and task.vectors == (4, 4, 6)
    assert task.model_changes(tokenizer) == {
        f"decoder.embedding.media.{i}.token": tokenizer.id(f"<{name}>") for i, name in enumerate(task.media)
    }
    end, plus = tokenizer.eos_id, tokenizer.id("plus")
    example = next(one for one in source.examples() if "sound" in one and "image" in one and len(one["terms"]) == 2)
    item = task.item(example, tokenizer, STILL)
    assert isinstance(item, Item) and item.labels is not None
    spans = [[tokenizer.id(f"<{name}>")] * 4 for name in ("image", "sound")]
    spans = spans if example["question"].startswith("<image>") else spans[::-1]
    answer = tokenizer.encode(example["answer"])
    prompt = [end, *spans[0], plus, *spans[1], end]
    assert item.arrays["ids"].tolist() == [*prompt, *answer]
    assert np.asarray(item.labels).tolist() == [IGNORE] * (len(prompt) - 1) + [*answer, end]
    assert item.media["image"].shape == (1, 1, 8, 8) and item.media["sound"].shape == (1, 1, 8, 16)
    assert item.example["prompt"] == len(prompt)
    whole = task.replace({"learns": "all"}).item(example, tokenizer, STILL)
    assert isinstance(whole, Item) and whole.labels is not None
    places = {task.places[0], task.places[1]}
    assert np.asarray(whole.labels).tolist() == [IGNORE if t in places else t for t in [*prompt[1:], *answer, end]]


def test_a_conversation_learns_every_reply_and_none_of_its_media(
    task: Omni, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "a.wav").write_bytes(audio.encode(np.zeros(2000, np.float32), 8000))
    said = [
        {"role": "user", "content": [{"type": "image", "path": "a.png"}, {"type": "text", "text": "plus two"}]},
        {"role": "assistant", "content": "written one"},
        {"role": "user", "content": [{"type": "text", "text": "plus"}, {"type": "audio", "path": "a.wav"}]},
        {"role": "assistant", "content": "spoken two"},
        {"role": "user", "content": "plus"},
    ]
    (tmp_path / "chats.jsonl").write_text(json.dumps({"messages": said}))
    path = str(tmp_path / "chats.jsonl")
    (example,) = JsonLines(path=path, validation_path=path, test_path=path, messages="messages").examples()
    item = task.item(example, tokenizer, STILL)
    assert isinstance(item, Item) and item.labels is not None
    end, image, sound = tokenizer.eos_id, *task.places[:2]
    first, second = tokenizer.encode("written one"), tokenizer.encode("spoken two")
    asked, then = tokenizer.encode("plus two"), tokenizer.encode("plus")
    whole = [end, *[image] * 4, *asked, end, *first, end, *then, *[sound] * 4, end, *second, end]
    assert item.arrays["ids"].tolist() == whole[:-1]
    learned = [*first, end] + [IGNORE] * (len(then) + 5) + [*second, end]
    assert np.asarray(item.labels).tolist() == [IGNORE] * (len(whole) - 1 - len(learned)) + learned
    assert item.example["prompt"] == len(whole) - len(second) - 1 and item.example["answer"] == "spoken two"
    assert set(item.media) == {"image", "sound"}


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"type": "image", "path": "../a.png"}, r"chats.jsonl', line 1: message 0, part 0, .* lies outside of"),
        ({"type": "image", "path": "b.png"}, r"line 1: message 0, part 0, names the file 'b.png', and there is none"),
        ({"type": "image_url", "image_url": {"url": "https://a/b.png"}}, "addresses are not followed; download"),
        ({"type": "image"}, "line 1: message 0, part 0, names no file"),
        ({"type": "film", "path": "a.mp4"}, "line 1: message 0, part 0, should be a text"),
        ({"type": "video", "path": "chats.jsonl"}, "is of the type video, and this model"),
        (
            {"type": "input_audio", "input_audio": {"data": "aaaa", "format": "wav"}},
            "is of the type sound, and this model",
        ),
    ],
)
def test_a_part_that_can_not_be_read_is_one_sentence(
    part: dict, said: str, task: Omni, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    messages = [{"role": "user", "content": [part]}, {"role": "assistant", "content": "one"}]
    (tmp_path / "chats.jsonl").write_text(json.dumps({"messages": messages}))
    path = str(tmp_path / "chats.jsonl")
    seeing = task.replace({"media": task.media[:1], "places": task.places[:1], "vectors": task.vectors[:1]})
    with pytest.raises(ValueError, match=said):
        for example in JsonLines(path=path, validation_path=path, test_path=path, messages="messages").examples():
            seeing.item(example, tokenizer, STILL)


def test_a_model_of_text_alone_names_the_part(tokenizer: Tokenizer) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "path": "a.png"}]}]
    with pytest.raises(ValueError, match="message 0, part 1, is of the type image, and this model reads text alone"):
        tokenizer.chat.prompt(messages)


def test_other_models_are_refused_in_one_sentence(
    source: AnyDigits, tokenizer: Tokenizer, sizes: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match="needs a model that reads media between tokens"):
        Omni().resolve(source, tokenizer, preset("gpt2", vocab_size=9).output.embedding)
    small = AnyDigits(forms=("word",), train=9)
    inputs = preset("joint", vocab_size=tokenizer.vocab_size, **sizes).output.embedding
    with pytest.raises(ValueError, match="the training data have no image, and the model reads some"):
        Omni().resolve(small, tokenizer, inputs)
    assert qkv.build(preset("joint", vocab_size=9, **sizes)).spec.n_parameters > 0
