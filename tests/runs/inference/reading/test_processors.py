"""Processors of PaliGemma, Gemma 3 and Qwen-VL beside transformers: pixels to the last bit, ids, and generations."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hub_pictures
import numpy as np
import pytest
import torch
from hub_pictures import SIDE, without_videos
from PIL import Image

import qkv
from qkv.runs.inference.reading.beside import conversation, prompts, readers_of
from qkv.runs.tasks.media import TextWithFiles

Saved = Callable[[str], tuple[Path, Any, Any]]
ALONE = {"paligemma": "<image>", "gemma3": "<start_of_image>"}
KINDS = [
    pytest.param(kind, marks=pytest.mark.slow if kind in ("qwen2_vl", "qwen3_vl") else [])
    for kind in ("paligemma", "gemma3", "qwen2_vl", "qwen2_5_vl", "qwen3_vl")
]
OPTIONS: dict[str, Any] = {"max_new_tokens": 20, "min_new_tokens": 20, "num_beams": 1}


@pytest.fixture(scope="module")
def pictures() -> list[Image.Image]:
    draw = np.random.default_rng(0)
    return [Image.fromarray(draw.integers(0, 256, (*size, 3), np.uint8)) for size in ((30, 21), (9, 50), (12, 12))]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    made: dict[str, tuple[Path, Any, Any]] = {}

    def of(kind: str) -> tuple[Path, Any, Any]:
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            made[kind] = (folder, *hub_pictures.save(kind, folder))
        return made[kind]

    return of


def place(kind: str) -> str:
    return ALONE.get(kind, "<|vision_start|><|image_pad|><|vision_end|>")


def text_of(kind: str, count: int) -> str:
    """A text whose pictures stand beside white space, before it for PaliGemma."""
    marks = [place(kind)] * count
    return (
        f"{''.join(marks)}what is in\nthe picture?" if kind == "paligemma" else f"what\n{'  in'.join(marks)}\n\nis it?"
    )


def theirs_of(processor: Any, text: str | list[str], images: list[Any], **options: Any) -> Any:
    given = processor(text=text, images=images, return_tensors="pt", **options)
    given.pop("labels", None)
    return given


def pixels_of(processor: Any, arrays: list[Any]) -> Any:
    """Our numbers of pictures as their processor arranges them."""
    seen = processor.image_processor
    if not hasattr(seen, "patchify"):
        return np.stack(arrays)
    sizes = {"patch_size": seen.patch_size, "merge_size": seen.merge_size}
    return np.concatenate(
        [seen.patchify(one, temporal_patch_size=seen.temporal_patch_size, **sizes)[0] for one in arrays]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_question_about_pictures_is_read_and_answered_as_in_transformers(
    kind: str, saved: Saved, pictures: list[Image.Image], tmp_path: Path
) -> None:
    folder, theirs, processor = saved(kind)
    run, text = qkv.load(folder), text_of(kind, 2)
    wanted = theirs_of(processor, text, [pictures[:2]])
    (ids,), (media,) = prompts(run, [TextWithFiles(text, {"image": tuple(pictures[:2])})])
    assert ids == wanted.input_ids[0].tolist()
    assert np.array_equal(pixels_of(processor, media["image"]), wanted.pixel_values.numpy())
    made = theirs.generate(**wanted, **OPTIONS, do_sample=False)[0, -20:].tolist()
    files = [tmp_path / "a.png", tmp_path / "b.png"]
    for file, picture in zip(files, pictures, strict=False):
        picture.save(file)
    assert run.generate(text, images=files, **OPTIONS) == run.words.decode(made)


@pytest.mark.parametrize("kind", KINDS)
def test_texts_of_unequal_lengths_are_answered_together(kind: str, saved: Saved, pictures: list[Image.Image]) -> None:
    folder, theirs, processor = saved(kind)
    run, texts = qkv.load(folder), [text_of(kind, 2), f"{place(kind)}a red circle"]
    wanted = theirs_of(processor, texts, [pictures[:2], pictures[2:]], padding=True, padding_side="left")
    made = theirs.generate(**wanted, **OPTIONS, do_sample=False)[:, -20:].tolist()
    assert run.generate(texts, images=pictures, **OPTIONS) == [run.words.decode(row) for row in made]


@pytest.mark.parametrize("kind", KINDS)
def test_a_conversation_is_read_as_in_transformers(kind: str, saved: Saved, pictures: list[Image.Image]) -> None:
    folder, _, processor = saved(kind)
    said: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "image", "image": pictures[0]}, {"type": "text", "text": "what is it?"}]},
        {"role": "model", "content": "a circle"},
        {"role": "user", "content": [{"type": "text", "text": "and\n"}, {"type": "image", "image": pictures[1]}]},
    ]
    said[1]["role"] = "assistant"
    plain = [
        {**one, "content": [{k: v for k, v in part.items() if k != "image"} for part in one["content"]]}
        if isinstance(one["content"], list)
        else one
        for one in said
    ]
    text = processor.tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=True)
    wanted = theirs_of(processor, text, [pictures[:2]], add_special_tokens=False)
    run = qkv.load(folder)
    ids, media = conversation(run, said)
    assert ids == wanted.input_ids[0].tolist()
    assert np.array_equal(pixels_of(processor, media["image"]), wanted.pixel_values.numpy())
    assert run.chat(said, max_new_tokens=3) == run.chat(plain, images=pictures[:2], max_new_tokens=3)
    names = f"{place(kind)} <end_of_turn>"  # in a message, they are texts
    (spelled, none) = conversation(run, [{"role": "user", "content": names}])
    assert readers_of(run)[0].token not in spelled and not none


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_directory_is_read_by_transformers_with_equal_pixels_and_ids(
    kind: str, saved: Saved, pictures: list[Image.Image], tmp_path: Path
) -> None:
    import transformers

    folder, _, processor = saved(kind)
    run = qkv.load(folder)
    run.save(tmp_path / "ours", "hub")
    if kind.startswith("qwen"):
        images = transformers.AutoImageProcessor.from_pretrained(tmp_path / "ours")
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
        again = without_videos(type(processor), images, tokenizer)
    else:
        again = transformers.AutoProcessor.from_pretrained(tmp_path / "ours")
    assert type(again) is type(processor)
    text = text_of(kind, 2)
    found, wanted = (theirs_of(one, text, [pictures[:2]]) for one in (again, processor))
    assert torch.equal(found.input_ids, wanted.input_ids) and torch.equal(found.pixel_values, wanted.pixel_values)
    qkv.load(folder).save(tmp_path / "qkv", "qkv")
    for kept in ("ours", "qkv"):
        assert (
            prompts(qkv.load(tmp_path / kept), [TextWithFiles(text, {"image": tuple(pictures[:2])})])[0]
            == prompts(run, [TextWithFiles(text, {"image": tuple(pictures[:2])})])[0]
        )


def test_pieces_of_long_pictures_are_those_of_pan_and_scan(pictures: list[Image.Image], tmp_path: Path) -> None:
    """transformers' processor of Gemma 3 needs the settings at every call; here the directory's are enough."""
    settings = {"do_pan_and_scan": True, "pan_and_scan_min_crop_size": 4, "pan_and_scan_max_num_crops": 3}
    settings["pan_and_scan_min_ratio_to_activate"] = 1.3
    theirs, processor = hub_pictures.save("gemma3", tmp_path, **settings)
    run, text = qkv.load(tmp_path), text_of("gemma3", 3)
    wanted = theirs_of(processor, text, [pictures], **settings)
    (ids,), (media,) = prompts(run, [TextWithFiles(text, {"image": tuple(pictures)})])
    assert ids == wanted.input_ids[0].tolist()
    assert np.array_equal(np.stack(media["image"]), wanted.pixel_values.numpy()) and len(media["image"]) == 8
    made = theirs.generate(**wanted, **OPTIONS, do_sample=False)[0, -20:].tolist()
    assert run.generate(text, images=pictures, **OPTIONS) == run.words.decode(made)


def test_places_that_a_text_lacks_stand_before_it(saved: Saved, pictures: list[Image.Image]) -> None:
    for kind in ("paligemma", "qwen2_5_vl"):
        run = qkv.load(saved(kind)[0])
        alone = run.generate("what is it?", images=pictures[0], **OPTIONS)
        assert alone == run.generate(f"{place(kind)}what is it?", images=pictures[0], **OPTIONS)


def test_what_does_not_fit_is_one_sentence(
    saved: Saved, pictures: list[Image.Image], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = Image.new("RGB", (5000, 1))
    for kind in ("paligemma", "gemma3", "qwen2_5_vl"):
        run, mark = qkv.load(saved(kind)[0]), readers_of(qkv.load(saved(kind)[0]))[0].marker
        for text, given, said in (
            (f"a {mark}", {}, "1 placeholder .* and 0 images beside it; give one image for each"),
            (f"a {mark}", {"images": pictures}, "1 placeholder .* and 3 images"),
            ("a", {"sounds": [b"x"]}, "reads text(,| and) images"),
        ):
            with pytest.raises(ValueError, match=said):
                run.generate(text, **given, max_new_tokens=1)
    line.save("line.png")
    with pytest.raises(ValueError, match=r"'line.png' has 1 × 5,000 pixels, .* at most 200 times the shorter one"):
        run.generate("a", images="line.png", max_new_tokens=1)
    assert isinstance(qkv.load(saved("gemma3")[0]).generate("a", images=line, max_new_tokens=1), str)


@pytest.mark.parametrize(
    ("kind", "changes", "said"),
    [
        (
            "paligemma",
            {"size": {"height": 15, "width": 15}},
            f"draws pictures of 15 × 15 pixels, .* reads {SIDE} × {SIDE}",
        ),
        ("paligemma", {"image_seq_length": 25}, "gives a picture 25 places .* makes 16 vectors of it"),
        (
            "gemma3",
            {"do_pan_and_scan": True, "pan_and_scan_max_num_crops": 0},
            "max_num_crops must be a number of at least 1, not 0",
        ),
        ("qwen2_5_vl", {"patch_size": 14}, "has a patch_size of 14, and the model one of 4"),
        ("qwen2_5_vl", {"merge_size": 3}, "has a merge_size of 3, and the model one of 2"),
        ("qwen2_5_vl", {"temporal_patch_size": 1}, "has a temporal_patch_size of 1, and the model one of 2"),
        ("qwen2_5_vl", {"size": {"shortest_edge": 9, "longest_edge": 4}}, "pictures have 9 to 4 pixels"),
    ],
)
def test_a_processor_of_another_model_is_refused(
    kind: str, changes: dict[str, Any], said: str, saved: Saved, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(saved(kind)[0], tmp_path / "other"))
    name = "preprocessor_config.json" if kind.startswith("qwen") else "processor_config.json"
    config = json.loads((folder / name).read_text())
    (config if kind.startswith("qwen") else config["image_processor"]).update(changes)
    (folder / name).write_text(json.dumps(config))
    with pytest.raises(ValueError, match=said):
        readers_of(qkv.load(folder))


def test_older_files_of_qwen_bound_pixels_by_keys_of_their_own(saved: Saved, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(saved("qwen2_5_vl")[0], tmp_path / "older"))
    path = folder / "preprocessor_config.json"
    config = json.loads(path.read_text())
    del config["size"]
    path.write_text(json.dumps({**config, "min_pixels": 400, "max_pixels": 900}))
    from transformers import Qwen2VLImageProcessorPil

    theirs = Qwen2VLImageProcessorPil.from_pretrained(folder)
    reader, _ = readers_of(qkv.load(folder))
    for size in ((3, 5), (20, 20), (40, 31), (1, 150)):
        picture = Image.fromarray(np.random.default_rng(1).integers(0, 256, (*size, 3), np.uint8))
        wanted = theirs(images=[picture], return_tensors="np")
        found = reader.read(picture)
        sizes = {"patch_size": 4, "merge_size": 2, "temporal_patch_size": 2}
        assert np.array_equal(theirs.patchify(found, **sizes)[0], wanted["pixel_values"])
