"""`--image`, `--sound` and `--video` of generate, predict and chat, on untrained runs."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import small_recipes
from PIL import Image
from seeing import save_see

import qkv
from qkv.cli import main

QUESTION = "what color is the circle ?"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_see(tmp_path_factory.mktemp("seen")).parent


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main([*arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_every_way_to_ask_about_a_picture_gives_the_same(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    see, a, b = str(folder / "see"), str(folder / "a.png"), str(folder / "b.png")
    loaded = qkv.load(see)
    wanted = [loaded.generate(QUESTION, images=one) for one in (a, b)]
    assert wanted[0] != wanted[1]
    assert loaded.generate([QUESTION] * 2, images=[a, b]) == wanted
    assert loaded.generate(f"<image>{QUESTION}", images=[b]) == wanted[1]
    assert run(capsys, "generate", see, "--image", a, "--image", b, QUESTION, QUESTION) == wanted
    assert run(capsys, "generate", see, "--image", b, QUESTION, QUESTION) == [wanted[1]] * 2
    assert run(capsys, "generate", see, "--image", a, QUESTION, "--stream") == [wanted[0]]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{QUESTION}\n\n{QUESTION}\n".encode())))
    assert run(capsys, "generate", see, "--image", a) == [wanted[0], "", wanted[0]]
    assert run(capsys, "chat", see, "--image", a, QUESTION, "--top-k", "1") == [wanted[0].strip()]
    # prediction evaluates as training does: without the run's least number of new tokens
    asked = ("--image", a, "--image", b, QUESTION, QUESTION)
    said = [json.loads(line) for line in run(capsys, "predict", see, *asked, "--json")]
    assert [one["question"] for one in said] == [QUESTION] * 2
    assert [one["output"] for one in said] == [loaded.predict(f"{one}\t{QUESTION}").fields["output"] for one in (a, b)]
    captions = run(capsys, "predict", see, "--image", a, "--image", b)
    assert captions == [loaded.predict(one).fields["output"] for one in (a, b)]
    assert [one.fields["output"] for one in loaded.predict([QUESTION, QUESTION], images=[a, b])] == [
        one["output"] for one in said
    ]


def test_a_very_long_picture_is_told(folder: Path) -> None:
    see = qkv.load(folder / "see")
    with pytest.warns(UserWarning, match="long.png' has 1 × 5,000 pixels and is stretched to 32 × 32, in which little"):
        Image.new("RGB", (5000, 1)).save(folder / "long.png")
        see.generate("what ?", images=str(folder / "long.png"))


@pytest.mark.parametrize("command", ["generate", "predict"])
def test_files_and_places_that_differ_in_number_are_one_sentence(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    see, a = str(folder / "see"), ["--image", str(folder / "a.png")]
    for arguments, said in (
        ([*a, *a, *a, QUESTION, QUESTION], "2 texts have 2 placeholders <image> and 3 images beside them"),
        ([f"what <image> {QUESTION}"], "1 placeholder <image> and 0 images beside it"),
        ([*a, *a, QUESTION], "the question has 2 <image> and one picture"),
        (["--sound", a[1], QUESTION], "has 1 sound beside it, and this model reads text and images"),
        (["--image", "nowhere.png", QUESTION], "there is no file 'nowhere.png'"),
    ):
        if command == "predict" and "--image" not in arguments and "--sound" not in arguments:
            continue  # an input without a file is the name of one
        assert main([command, see, *arguments]) == 2
        error = capsys.readouterr().err
        assert said in error and len(error.splitlines()) == 1, error
    assert main([command, "small-english", *a, "a"]) == 2
    assert "small-english" in capsys.readouterr().err


def test_files_are_inputs_of_a_run_that_reads_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, tokenizer, model, _ = small_recipes.prepared("video-classify")
    qkv.Run(model, tokenizer, recipe=recipe).save(tmp_path / "video", "qkv")
    draw = np.random.default_rng(0).integers(0, 256, (4, 24, 24), np.uint8)
    frames = [Image.fromarray(one) for one in draw]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    recipe, tokenizer, model, _ = small_recipes.prepared("classify")
    qkv.Run(model, tokenizer, recipe=recipe).save(tmp_path / "texts", "qkv")
    model, file = str(tmp_path / "video"), str(tmp_path / "a.gif")
    wanted = run(capsys, "predict", model, file)
    assert wanted and run(capsys, "predict", model, "--video", file) == wanted
    for run_name, arguments, said in (
        (model, ["--image", file], "reads videos and no images; leave --image out"),
        (model, ["--video", file, "--sound", file], "reads videos and no sounds; leave --sound out"),
        (model, ["--video", file, "what?"], "reads videos without texts beside them; leave the texts out"),
        (str(tmp_path / "texts"), ["--video", file, "what?"], "reads no videos; leave --video out"),
    ):
        assert main(["predict", run_name, *arguments]) == 2
        error = capsys.readouterr().err
        assert said in error and len(error.splitlines()) == 1, error
