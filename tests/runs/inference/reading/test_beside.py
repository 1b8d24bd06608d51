"""Files beside texts: a run that was trained here, and a directory of the Hub beside transformers."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from seeing import SIDE, save_idefics3

import qkv
from qkv.runs.inference.reading.beside import conversation, prompts, readers_of, with_files
from qkv.runs.tasks.media import TextWithFiles


@pytest.fixture(scope="module")
def pictures() -> list[Image.Image]:
    draw = np.random.default_rng(0)
    return [Image.fromarray(draw.integers(0, 256, (*size, 3), np.uint8)) for size in ((30, 21), (9, 50), (12, 12))]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    folder = tmp_path_factory.mktemp("idefics3")
    return folder, *save_idefics3(folder)


def test_a_directory_reads_pictures_as_its_processor_in_transformers(
    hub: tuple[Path, Any, Any], pictures: list[Image.Image]
) -> None:
    folder, theirs, processor = hub
    run = qkv.load(folder)
    text = "what is <image> and <image>? <end_of_utterance>"
    ids, media = prompts(run, [TextWithFiles(text, {"image": tuple(pictures[:2])})])
    wanted = processor(text=text.replace("<end_of_utterance>", ""), images=[pictures[:2]], return_tensors="pt")
    place = run.model.spec.decoder.embedding.media[0].token
    assert ids[0].count(place) == 2 * 4
    end = run.encode("<end_of_utterance>")  # a control token in a text is spelled out
    assert ids[0] == [*wanted.input_ids[0].tolist(), *end]
    assert len(end) > 1
    for ours, pixels in zip(media[0]["image"], wanted.pixel_values[0], strict=True):
        assert ours.shape == (3, SIDE, SIDE)
        np.testing.assert_allclose(ours, pixels.numpy(), atol=2e-6)
    made = theirs.generate(**wanted, max_new_tokens=4, do_sample=False, eos_token_id=None)[0, -4:]
    output = run.generate(
        text.replace("<end_of_utterance>", ""), images=pictures[:2], max_new_tokens=4, min_new_tokens=4, num_beams=1
    )
    assert output == processor.tokenizer.decode(made, skip_special_tokens=True)


def test_what_a_directory_lacks_is_one_sentence(hub: tuple[Path, Any, Any], pictures: list[Image.Image]) -> None:
    run = qkv.load(hub[0])
    for texts, options, said in (
        ("a <image>", {}, "1 placeholder <image> and 0 images beside it"),
        ("a <image>", {"images": pictures}, "1 placeholder <image> and 3 images"),
        ("a", {"sounds": [b"x"]}, "reads text and images"),
        ("a", {"images": "nowhere.png"}, "there is no file 'nowhere.png'"),
    ):
        with pytest.raises(ValueError, match=said):
            run.generate(texts, max_new_tokens=1, **options)
    plain = qkv.load("small-english")
    with pytest.raises(ValueError, match="small-english reads no pictures, sounds or videos in the places of tokens"):
        plain.generate("a", images=pictures[0])
    pixels = torch.rand(1, 3, SIDE, SIDE)
    assert readers_of(run)[0].tokens(tuple(pixels[0].shape)) == 4


@pytest.mark.parametrize("size", [(30, 21), (9, 50), (12, 12), (1, 500)])
def test_tiles_and_their_places_are_those_of_transformers(
    hub: tuple[Path, Any, Any], size: tuple[int, int], tmp_path: Path
) -> None:
    """To the last bit and token for token; `processor_config.json` holds the settings since transformers 5."""
    folder = Path(shutil.copytree(hub[0], tmp_path / "tiles"))
    (folder / "preprocessor_config.json").unlink()
    theirs, processor = hub[1:]
    processor = copy.deepcopy(processor)
    processor.image_processor.do_image_splitting = True
    processor.save_pretrained(folder)
    picture = Image.fromarray(np.random.default_rng(1).integers(0, 256, (*size, 3), np.uint8))
    text = "what is <image>, a red circle?"
    run, wanted = qkv.load(folder), processor(text=text, images=[picture], return_tensors="pt")
    ids, media = prompts(run, [TextWithFiles(text, {"image": (picture,)})])
    assert ids[0] == wanted.input_ids[0].tolist()
    assert np.array_equal(np.stack(media[0]["image"]), wanted.pixel_values[0].numpy())
    assert len(media[0]["image"]) > 1
    made = theirs.generate(**wanted, max_new_tokens=4, do_sample=False, eos_token_id=None)[0, -4:]
    output = run.generate(text, images=[picture], max_new_tokens=4, min_new_tokens=4, num_beams=1)
    assert output == processor.tokenizer.decode(made, skip_special_tokens=True)


def test_a_processor_that_is_not_supported_is_told(hub: tuple[Path, Any, Any], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(hub[0], tmp_path / "other"))
    config = json.loads((folder / "preprocessor_config.json").read_text())
    for changes, said in (
        ({"resample": 7}, "resample is 7, and what is built is 0 .nearest., 1"),
        ({"size": {"longest_edge": 0}}, "it has a longest_edge of 0"),
        ({"image_mean": [0.5]}, "have 1 and 3 channels"),
        ({"do_normalize": False}, "do_normalize is false"),
    ):
        (folder / "preprocessor_config.json").write_text(json.dumps({**config, **changes}))
        with pytest.raises(ValueError, match=said):
            readers_of(qkv.load(folder))


def test_a_conversation_with_pictures_is_that_of_its_processor_in_transformers(
    hub: tuple[Path, Any, Any], pictures: list[Image.Image]
) -> None:
    folder, _, processor = hub
    run = qkv.load(folder)
    said: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "image", "image": pictures[0]}, {"type": "text", "text": "what is it?"}]},
        {"role": "assistant", "content": "a red circle"},
        {"role": "user", "content": [{"type": "text", "text": "and"}, {"type": "image", "image": pictures[1]}]},
    ]
    ids, media = conversation(run, said)
    plain = [
        {
            **one,
            "content": one["content"]
            if isinstance(one["content"], str)
            else [
                {"type": part["type"], **({"text": part["text"]} if "text" in part else {})} for part in one["content"]
            ],
        }
        for one in said
    ]
    text = processor.tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=True)
    wanted = processor(text=text, images=[pictures[:2]], return_tensors="pt")
    assert ids == wanted.input_ids[0].tolist()
    np.testing.assert_allclose(np.stack(media["image"]), wanted.pixel_values[0].numpy(), atol=2e-6)
    options: dict[str, Any] = {"max_new_tokens": 3, "num_beams": 1}
    reply = run.chat(said, **options)
    pieces: list[str] = []
    assert run.chat(said, pieces.append, **options) == reply == "".join(pieces)
    holes = [{**said[0], "content": [{"type": "image"}, said[0]["content"][1]]}, said[1], said[2]]
    assert run.chat(holes, images=pictures[:1], **options) == reply
    first = with_files(run, [{"role": "user", "content": "what is it?"}], pictures[:1])
    assert conversation(run, first)[0] == conversation(run, said[:1])[0]
    for messages, given, message in (
        (holes, pictures, "1 part of the type image without a file, and 3 images are given"),
        ([{"role": "user", "content": [{"type": "audio", "path": "a.wav"}]}], None, "this model reads text and images"),
    ):
        with pytest.raises(ValueError, match=message):
            run.chat(messages, images=given, **options)
