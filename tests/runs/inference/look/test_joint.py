"""Attention from words into pictures and sounds of joint sequences, on untrained runs of the recipes see and omni."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import small_recipes
from PIL import Image

import qkv
from qkv.cli import main
from qkv.data.media import audio
from qkv.nn.attention import tap
from qkv.runs.inference.look.joint import joint_pass
from qkv.runs.inference.reading.beside import conversation, prompts
from qkv.runs.tasks.media import TextWithFiles


@pytest.fixture(scope="module")
def omni(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained run of the recipe omni, a picture and a sound."""
    folder = tmp_path_factory.mktemp("look")
    recipe, tokenizer, model, _ = small_recipes.prepared("omni")
    qkv.Run(model, tokenizer, qkv.Generation(max_new_tokens=3), recipe=recipe).save(folder / "omni", "qkv")
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)
    Image.fromarray(pixels).save(folder / "a.png")
    (folder / "a.wav").write_bytes(audio.encode(np.sin(np.arange(4000) / 9).astype(np.float32), 8000))
    return folder


def test_weights_are_those_of_the_sequence_from_the_words_to_each_medium(omni: Path) -> None:
    run = qkv.load(omni / "omni")
    text = TextWithFiles(
        "<image> plus <sound> plus <image>", {"image": (omni / "a.png",) * 2, "sound": (omni / "a.wav",)}
    )
    (view,) = run.look(text).views
    made = joint_pass(run, text)
    assert [span.name for span in made.spans] == ["image", "image 2", "sound"] or [s.name for s in made.spans] == [
        "image 1",
        "image 2",
        "sound",
    ]
    with tap.record_attention() as requests:
        made.run()
    every = [tap.weights(request)[0] for request in requests if request.name.startswith("decoder")]
    for span in made.spans:
        group = view.group(span.name)
        words, places = view.axes[group.query], view.axes[group.key]
        assert places.grid == span.grid and places.picture is not None and not words.note and not places.note
        assert places.shown == span.places == span.every == tuple(range(span.every[0], span.every[-1] + 1))
        assert not set(words.shown) & {i for one in made.spans for i in one.every}
        for layer, weights in zip(group.layers, every, strict=True):
            wanted = weights[:, list(words.shown)][..., list(places.shown)].float()
            np.testing.assert_allclose(layer.weights.numpy(), wanted.detach().numpy(), atol=1e-6)
    assert "decoder" in [group.name for group in view.groups]


def test_the_command_writes_a_page_and_a_picture(omni: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--image", str(omni / "a.png"), "--sound", str(omni / "a.wav")]
    run, text, page = str(omni / "omni"), "<image> plus <sound>", omni / "page.html"
    assert main(["look", run, *files, text, "--out", str(page)]) == 0
    assert "output:" in capsys.readouterr().out
    html = page.read_text(encoding="utf-8")
    assert "words after the image" in html and "words after the sound" in html
    for kind in ("image", "sound"):
        assert main(["look", run, *files, text, "--kind", kind, "--out", str(omni / f"{kind}.svg")]) == 0
    assert main(["look", run, *files, text, "--score", "image.0.0.17.2"]) == 0
    one = ["--kind", "image", "--layers", "0", "--heads", "1"]
    assert main(["look", run, *files, "plus", *one, "--out", str(page), "--overwrite"]) == 0
    capsys.readouterr()
    for arguments, said in (
        ([*files[:2], text], "1 placeholder <sound> and 0 sounds beside it"),
        ([*files, text, "--generate", "3"], "leave target and generate out"),
        ([*files, text, "--kind", "video"], "video"),
    ):
        assert main(["look", run, *arguments, "--out", str(page), "--overwrite"]) == 2
        error = capsys.readouterr().err
        assert said in error and len(error.splitlines()) == 1, error


def test_a_conversation_of_the_recipes_begins_like_a_question(omni: Path) -> None:
    run = qkv.load(omni / "omni")
    text = TextWithFiles("<image> plus two", {"image": (omni / "a.png",)})
    said = [
        {
            "role": "user",
            "content": [{"type": "image", "path": str(omni / "a.png")}, {"type": "text", "text": " plus two"}],
        }
    ]
    assert conversation(run, said)[0] == prompts(run, [text])[0][0]


def test_a_tower_is_no_layer_of_the_decoder(tmp_path: Path) -> None:
    recipe, tokenizer, model, _ = small_recipes.prepare("see", [*small_recipes.FEW, "model.tower_layers=2"])
    run = qkv.Run(model, tokenizer, qkv.Generation(max_new_tokens=2), recipe=recipe)
    Image.new("RGB", (32, 32), "red").save(tmp_path / "a.png")
    (view,) = run.look(f"{tmp_path / 'a.png'}\twhat color ?").views
    assert {group.name: group.total for group in view.groups} == {"image": 1, "decoder": 1}
    assert view.axes["image"].grid is not None and view.axes["image"].grid.patches == 64
