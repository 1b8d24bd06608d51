"""What is guessed for files and folders of each kind, that the commands run as they are printed, and what is refused."""

from __future__ import annotations

import gzip
import io
import json
import math
import random
import shlex
import tarfile
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from guessable_files import conversations, labelled_lines, pairs_tsv, plain, reviews_csv, series, tagged, texts, write
from PIL import Image

from qkv.cli import main
from qkv.runs.recipes.guess import guess
from qkv.runs.recipes.recipe import Recipe


def pairs_with_labels(folder: Path) -> Path:
    rows = (
        {"premise": a, "hypothesis": b, "label": len(a) % 3} for a, b in zip(texts(200), texts(200, 1), strict=True)
    )
    return write(folder / "nli.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def scored_pairs(folder: Path) -> Path:
    rows = (f'"{a}","{b}",{len(a) % 50 / 10}\n' for a, b in zip(texts(200), texts(200, 1), strict=True))
    return write(folder / "sts.csv", "".join(rows))


def ratings(folder: Path) -> Path:
    rows = (f"{text}\t{len(text) / 7:.3f}\n" for text in texts(200))
    return write(folder / "price.tsv", "text\tscore\n" + "".join(rows))


def questions(folder: Path) -> Path:
    rows = []
    for text in texts(200):
        word = text.split()[1]
        rows.append({"context": text, "question": "which word ?", "answer": word, "start": text.index(f" {word}") + 1})
    return write(folder / "questions.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def squad(folder: Path) -> Path:
    articles = []
    for i, text in enumerate(texts(60)):
        word = text.split()[1]
        answer = [{"text": word, "answer_start": text.index(f" {word}") + 1}]
        qas = [{"id": str(i), "question": "which word ?", "answers": answer}]
        articles.append({"title": str(i), "paragraphs": [{"context": text, "qas": qas}]})
    return write(folder / "squad.json", json.dumps({"version": "1.1", "data": articles}))


def choices(folder: Path) -> Path:
    rows = ({"question": t, "options": [*texts(3, i)], "answer": i % 3} for i, t in enumerate(texts(100)))
    return write(folder / "quiz.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def text_folder(folder: Path) -> Path:
    for i in range(30):
        write(folder / "notes" / f"{i}.md", "\n".join(texts(20, i)))
    return folder / "notes"


def compressed_pairs(folder: Path) -> Path:
    path = folder / "pairs.tsv.gz"
    path.write_bytes(gzip.compress(pairs_tsv(folder).read_bytes()))
    return path


def picture(color: tuple[int, int, int] | int, size: tuple[int, int]) -> bytes:
    file = io.BytesIO()
    Image.new("RGB" if isinstance(color, tuple) else "L", size, color).save(file, "PNG")
    return file.getvalue()


def image_folder(folder: Path) -> Path:
    for name, color in (("red", (200, 0, 0)), ("blue", (0, 0, 200))):
        for i in range(40):
            path = folder / "photos" / name / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(picture(color, (24, 16)))
    return folder / "photos"


def video_folder(folder: Path) -> Path:
    for name in ("run", "walk"):
        for i in range(20):
            path = folder / "clips" / name / f"{i}.mp4"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(mp4(i))
    return folder / "clips"


def mp4(shade: int) -> bytes:
    av: Any = pytest.importorskip("av", reason="PyAV is not installed")
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as file:
        stream = file.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 16, 16, "yuv420p"
        for _ in range(2):
            file.mux(stream.encode(av.VideoFrame.from_ndarray(np.full((16, 16, 3), shade, np.uint8), format="rgb24")))
        file.mux(stream.encode())
    return out.getvalue()


def image_archive(folder: Path) -> Path:
    with tarfile.open(folder / "photos.tar", "w") as archive:
        archive.add(image_folder(folder), "photos")
    return folder / "photos.tar"


def mask_folder(folder: Path) -> Path:
    for part in ("images", "masks"):
        for i in range(12):
            path = folder / "cells" / part / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(picture(i % 2 if part == "masks" else 90, (64, 64)))
    return folder / "cells"


def boxes(folder: Path) -> Path:
    box = "<bndbox><xmin>2</xmin><ymin>3</ymin><xmax>20</xmax><ymax>22</ymax></bndbox>"
    for i in range(30):
        path = folder / "voc" / "JPEGImages" / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture((i, 0, 90), (48, 32)))
        size = "<size><width>48</width><height>32</height><depth>3</depth></size>"
        text = f"<annotation><filename>{i}.jpg</filename>{size}<object><name>cell</name>{box}</object></annotation>"
        write(folder / "voc" / "Annotations" / f"{i}.xml", text)
    return folder / "voc"


def coco(folder: Path) -> Path:
    for i in range(30):
        path = folder / "coco" / "pictures" / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture((i, 0, 90), (48, 32)))
    images = [{"id": i, "file_name": f"{i}.png", "width": 48, "height": 32} for i in range(30)]
    notes = [
        {"id": i, "image_id": i, "category_id": 1, "bbox": [2, 3, 20, 18], "area": 360, "iscrowd": 0} for i in range(30)
    ]
    tree = {"images": images, "annotations": notes, "categories": [{"id": 1, "name": "cell"}]}
    write(folder / "coco" / "boxes.json", json.dumps(tree))
    return folder / "coco"


def sound(path: Path, pitch: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(
            b"".join(round(9000 * math.sin(pitch * t)).to_bytes(2, "little", signed=True) for t in range(4000))
        )


def sound_folder(folder: Path) -> Path:
    for name, pitch in (("low", 0.2), ("high", 0.6)):
        for i in range(20):
            sound(folder / "calls" / name / f"{i}.wav", pitch + i / 500)
    return folder / "calls"


def sound_names(folder: Path) -> Path:
    for i in range(40):
        sound(folder / "digits" / f"{i % 2}_speaker_{i}.wav", 0.2 + i % 2 / 3)
    return folder / "digits"


def music(folder: Path) -> Path:
    draw = random.Random(0)
    pieces = [[[60 + draw.randrange(9), 67, 72] for _ in range(24)] for _ in range(60)]
    return write(folder / "pieces.json", json.dumps({"train": pieces, "valid": pieces[:5], "test": pieces[:5]}))


def sharegpt(folder: Path) -> Path:
    turns = ([{"from": r, "value": t} for r, t in zip(("human", "gpt"), texts(2, i), strict=True)] for i in range(60))
    return write(
        folder / "sharegpt.json", json.dumps([{"id": str(i), "conversations": t} for i, t in enumerate(turns)])
    )


def alpaca(folder: Path) -> Path:
    records = [dict(zip(("instruction", "output"), texts(2, i), strict=True), input="") for i in range(60)]
    return write(folder / "alpaca.json", json.dumps(records, indent=2))


CASES: dict[Callable[[Path], Path], tuple[str, dict[str, str]]] = {
    pairs_tsv: ("translate", {"data.source_column": "english", "data.target_column": "german"}),
    compressed_pairs: ("translate", {"data.source_column": "english"}),
    reviews_csv: ("classify", {"data.text": "text", "data.label": "sentiment"}),
    pairs_with_labels: ("classify", {"data.text": "premise", "data.pair": "hypothesis", "data.label": "label"}),
    scored_pairs: ("similarity", {"data.text": "0", "data.pair": "1", "data.score": "2"}),
    ratings: ("classify", {"task": "regress", "data.score": "score"}),
    conversations: ("chat", {"data.messages": "conversation"}),
    sharegpt: ("chat", {}),
    alpaca: ("chat", {}),
    questions: ("answer", {"data.kind": "questions"}),
    squad: ("answer", {"data.kind": "questions"}),
    choices: ("choose", {"data.choices": "[options]", "data.text": "question"}),
    tagged: ("tag", {"data.kind": "columns"}),
    labelled_lines: ("classify", {"data.kind": "labelled"}),
    plain: ("lm", {}),
    text_folder: ("lm", {"data.suffixes": "[.md]"}),
    series: ("forecast", {"data.history": "48", "data.horizon": "12", "model.image": "[1,48]"}),
    image_folder: ("vit", {"model.image": "[16,24]", "model.patch": "[4,4]", "model.channels": "3"}),
    video_folder: ("video", {"data.kind": "clips", "task.frames": "8", "model.channels": "6"}),
    image_archive: ("vit", {"model.image": "[16,24]", "model.channels": "3"}),
    mask_folder: ("segment", {"data.images": "images", "data.masks": "masks", "model.channels": "1"}),
    boxes: ("detect", {"data.kind": "voc", "model.image": "[32,48]"}),
    coco: ("detect", {"data.kind": "coco", "model.image": "[32,48]"}),
    sound_folder: ("speech", {"task.hop": "62", "task.n_fft": "128"}),
    sound_names: ("speech", {"data.label": "([^/_]+)_[^/]*$"}),
    music: ("music", {"data.kind": "scores"}),
}


def parallel(folder: Path) -> Path:
    for ending, seed in (("cs", 0), ("en", 1)):
        write(folder / "corpus" / f"train.{ending}", "".join(f"{text}\n" for text in texts(60, seed)))
        write(folder / "corpus" / f"dev.{ending}", "".join(f"{text}\n" for text in texts(20, seed)))
    return folder / "corpus"


def table_per_split(folder: Path) -> Path:
    for name, n in (("train", 200), ("valid", 30), ("test", 30)):
        rows = (f"{'ham' if i % 3 else 'spam'}\t{text}\n" for i, text in enumerate(texts(n)))
        write(folder / "sms" / f"{name}.tsv", "v1\tv2\n" + "".join(rows))
    return folder / "sms"


def midi(folder: Path) -> Path:
    mido = pytest.importorskip("mido")
    file = mido.MidiFile()
    file.tracks.append(
        mido.MidiTrack(mido.Message("note_on", note=60 + i % 9, velocity=90, time=200) for i in range(90))
    )
    (folder / "midi").mkdir(parents=True)
    file.save(folder / "midi" / "tune.mid")
    return folder / "midi" / "tune.mid"


CASES |= {
    parallel: ("translate", {}),
    table_per_split: ("classify", {"data.text": "v2", "data.label": "v1"}),
}
SMALL = ("training.max_steps=1", "evaluation.examples=2", "evaluation.test_examples=2")


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_the_recipe_and_its_settings(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path, (recipe, expected) = make(tmp_path), CASES[make]
    found = guess(path)
    settings = dict(setting.split("=", 1) for setting in found.settings)
    assert found.recipe == recipe and expected.items() <= settings.items()
    assert found.seen and all(found.seen)
    assert shlex.split(found.command(["a b"])) == ["qkv", "train", recipe, *found.settings, "a b"]
    Recipe.load(recipe, list(found.settings))


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_suffixes_mean_the_same_in_any_case(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path)
    if path.is_dir():
        pytest.skip("folders have no suffix")
    kept = [found_in(path)]
    for loud in (path.with_name(path.name.upper()), path.with_name(f"{path.stem}{path.suffix.title()}")):
        path.rename(loud)
        kept.append(found_in(loud))
        loud.rename(path)
    assert kept[0] == kept[1] == kept[2]


def found_in(path: Path) -> tuple[str, list[dict[str, Any]]]:
    """The recipe and the first examples, without their places."""
    found = guess(path)
    data = Recipe.load(found.recipe, list(found.settings)).data
    examples = [example for example, _ in zip(data.examples("validation"), range(3), strict=False)]
    return found.recipe, [{k: str(v) for k, v in one.items() if k not in ("where", "image")} for one in examples]


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_what_is_guessed_makes_batches_as_it_is_printed(
    make: Callable[[Path], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = shlex.split(guess(make(tmp_path)).command())
    assert main(["show", *command[2:], "--data"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("make", [*CASES, midi], ids=lambda make: make.__name__)
def test_a_path_of_any_characters_is_read_back(make: Callable[[Path], Path], tmp_path: Path) -> None:
    (tmp_path / (name := "a: b, [c] {d} #e = 'f' \"g\" é")).mkdir()
    path = make(tmp_path / name)
    command = shlex.split(guess(path).command())
    data = Recipe.load(command[2], command[3:]).data
    files = [value for name in type(data).path_fields if (value := getattr(data, name, None))]
    assert any(str(path) in str(file) for file in files) and all(
        Path(file).exists() for file in files if file != "masks"
    )


def test_the_other_direction_of_a_folder_is_a_command_that_works(tmp_path: Path) -> None:
    for name in ("t.de", "t.en"):
        write(tmp_path / name, "".join(f"{text}\n" for text in texts(60)))
    command = guess(tmp_path).seen[-1].partition("the other direction: ")[2].rstrip(")")
    assert guess(*map(Path, shlex.split(command)[2:])).settings == (
        f"data.source={tmp_path / 't.en'}",
        f"data.target={tmp_path / 't.de'}",
    )


# -- several files --------------------------------------------------------------------------------------------------


def test_two_texts_line_by_line_are_translations_from_the_first(tmp_path: Path) -> None:
    cs, en = (
        write(tmp_path / name, "".join(f"{t}\n" for t in texts(60, i))) for i, name in enumerate(("a.cs", "b.en"))
    )
    for one, other in ((cs, en), (en, cs)):
        found = guess(one, other)
        assert (found.recipe, found.settings) == ("translate", (f"data.source={one}", f"data.target={other}"))
        assert f"{one.name} is translated to {other.name}" in found.seen[1]
    short = write(tmp_path / "c.en", "one line\n")
    with pytest.raises(
        ValueError, match=r"a\.cs has 60 lines and c.en has 1 line, and line n of one must translate line n"
    ):
        guess(cs, short)
    with pytest.raises(ValueError, match=r"a\.cs, b\.en, c\.en are 3 files; give two text files"):
        guess(cs, en, short)


def test_files_of_each_split_are_told_by_their_names(tmp_path: Path) -> None:
    folder = parallel(tmp_path)
    files = [folder / name for name in ("dev.cs", "train.cs", "train.en", "dev.en")]
    expected = ("source=train.cs", "target=train.en", "validation_source=dev.cs", "validation_target=dev.en")
    assert guess(*files).settings == guess(folder).settings
    assert [one.replace(f"{folder}/", "").removeprefix("data.") for one in guess(*files).settings] == list(expected)
    tables = table_per_split(tmp_path)
    found = guess(tables / "test.tsv", tables / "train.tsv")
    assert (
        f"data.test_path={tables / 'test.tsv'}" in found.settings
        and f"data.path={tables / 'train.tsv'}" in found.settings
    )
    write(folder / "train.de", "x\n")
    with pytest.raises(ValueError, match="texts in parallel"):
        write(folder / "dev.de", "x\n") and guess(folder)
    with pytest.raises(ValueError, match=r"none of a_test\.csv, a_dev\.csv is for training by its name"):
        guess(write(tmp_path / "a_test.csv", "a,b\n"), write(tmp_path / "a_dev.csv", "a,b\n"))


@pytest.mark.slow  # the same commands, trained
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_what_is_guessed_trains(
    make: Callable[[Path], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe, *settings = shlex.split(guess(make(tmp_path)).command())[2:]
    reads_text = recipe not in ("vit", "segment", "detect", "speech", "video", "forecast", "music")
    small = [*SMALL, *(["tokenizer.vocab_size=300"] if reads_text else [])]
    status = main(["train", recipe, *settings, *small, "--out", str(tmp_path / "run")])
    assert status == 0, capsys.readouterr().err


def test_a_folder_of_something_else_says_what_it_holds(tmp_path: Path) -> None:
    write(tmp_path / "all" / "a.xyz", "x")
    write(tmp_path / "all" / "b.xyz", "x")
    with pytest.raises(ValueError, match=r"it holds 2 × \.xyz"):
        guess(tmp_path / "all")
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="it holds no files"):
        guess(tmp_path / "none")


def test_nothing_to_guess_from_is_said() -> None:
    with pytest.raises(ValueError, match="give the data: a file, a folder or an archive"):
        guess()
