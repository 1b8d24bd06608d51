"""The recipes of pictures and videos, cut short: trained, probed, asked about files; and docs/data-pictures.md."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import qkv
from qkv.cli import main
from qkv.runs.inference.classify_files import classify_files
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.batch_preview import preview

PAGE = Path(__file__).parents[3] / "docs" / "data-pictures.md"
TEXT = PAGE.read_text(encoding="utf-8")
SHORT = [
    *("model.d_model=16", "model.n_layers=1", "model.n_heads=2", "model.d_ff=32"),
    *("training.max_steps=4", "training.eval_every=2", "training.save_every=2", "training.schedule.warmup=1"),
    *("evaluation.examples=20", "evaluation.test_examples=40", "evaluation.samples=2"),
]
PAINTER = ["model.decoder_width=16", "model.decoder_layers=1", "model.decoder_heads=2", "model.decoder_d_ff=32"]


def short(words: list[str]) -> list[str]:
    """A command's words, cut short; a loaded model keeps its sizes."""
    loaded = any(word.startswith("model=") for word in words)
    made = [setting for setting in SHORT if not (loaded and setting.startswith("model."))]
    return [*words[:2], *made, *(PAINTER if words[1] == "mae" else []), *words[2:]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data of every kind that the page names."""
    folder = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(0)
    for i in range(120):
        pixels = random.integers(0, 100, (40, 36, 3), np.uint8)
        pixels[..., 2 * (i % 2)] += 120
        path = folder / "photos" / ("cat", "dog")[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
        frames = [Image.fromarray(np.full((16, 16, 3), 10 * t + 60 * (i % 2), np.uint8)) for t in range(9)]
        path = folder / "clips" / ("up", "down")[i % 2] / f"{i}.gif"
        path.parent.mkdir(parents=True, exist_ok=True)
        frames[0].save(path, save_all=True, append_images=frames[1:])
    (folder / "mnist").mkdir()
    for start in ("train", "t10k"):
        for name, array in (("images-idx3", np.zeros((100, 28, 28))), ("labels-idx1", np.arange(100) % 10)):
            head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
            data = gzip.compress(head + array.astype(np.uint8).tobytes())
            (folder / "mnist" / f"{start}-{name}-ubyte.gz").write_bytes(data)
    return folder


SHELL = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
COMMANDS = [shlex.split(line) for block in SHELL for line in block.splitlines()]


@pytest.mark.slow
def test_the_pages_commands_run(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    for i, words in enumerate(COMMANDS):
        out = [] if "--out" in words else ["--out", f"runs/{i}"]
        assert main([*short(words[1:]), *out]) == 0, capsys.readouterr().err
    probe, tuned, mae = (
        qkv.load(f"runs/{name}", device="cpu").model.state_dict() for name in ("probe", "tuned", "mae")
    )
    kept = [name for name in mae if name.startswith("encoder.")]
    assert all((probe[name] == mae[name]).all() for name in kept)
    assert any((tuned[name] != mae[name]).any() for name in kept)
    assert not any(name.startswith("head.decoder") for name in probe)
    samples = json.loads(Path("runs/mae/samples.json").read_text())
    assert samples[0]["picture"]["kind"] == "patches"
    extremes = json.loads(Path("runs/mae/extremes.json").read_text())
    shown = [*samples, *extremes["best"], *extremes["worst"]]
    assert len(shown) == 12
    assert Path("runs/mae/report.html").read_text().count("data:image/png") == 3 * len(shown)


@pytest.mark.parametrize("example", re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL), ids=range(2))
def test_the_pages_python_runs(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(example, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"print\(.*\)  # (.*)", example)


def test_a_run_tells_what_is_in_files(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "train",
        "vit",
        f"data={{kind: images, path: {place / 'photos'}}}",
        "model.image=[8,8]",
        "model.channels=3",
    ]
    words += ["training.max_steps=60", "training.optimizer.lr=0.01", "objective.label_smoothing=0"]
    assert main([*short(words), "--out", str(tmp_path / "run")]) == 0, capsys.readouterr().err
    said = " ".join(capsys.readouterr().out.split())
    assert "Task: 2 classes: 'cat', 'dog'." in said
    assert "pixels, and the model reads 8 × 8; pictures are resized to that (model.image)." in said
    run = qkv.load(tmp_path / "run", device="cpu")
    paths = [place / "photos" / "dog" / "1.png", place / "photos" / "cat" / "0.png"]
    found = classify_files(run, paths)
    assert [one.label for one in found] == ["dog", "cat"]
    assert [list(one.probabilities) for one in found] == [["dog", "cat"], ["cat", "dog"]]
    assert all(sum(one.probabilities.values()) == pytest.approx(1, abs=1e-5) for one in found)
    (tmp_path / "no.png").write_text("x")
    with pytest.raises(ValueError, match=r"no\.png' can't be read as a picture"):
        classify_files(run, [tmp_path / "no.png"])


def test_a_run_on_texts_tells_nothing_of_pictures(trained: Path) -> None:
    with pytest.raises(ValueError, match="does not classify pictures"):
        classify_files(qkv.load(trained, device="cpu"), [])


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("vit", [], "1 × 8 × 8 numbers"),
        ("vit", ["task.mix=[mixup]"], "100% "),
        ("mae", [], "4 of 16 patches"),
        ("video", [], "2 × 64 × 16 numbers"),
    ],
)
def test_what_the_model_sees_is_shown(name: str, settings: list[str], said: str) -> None:
    lines = preview(Recipe.load(name, settings)).rows[0].lines()
    assert said in str(lines) and [name for name, _ in lines if name] == ["ids", "label"]


LEARNED = {"vit": ("accuracy", 0.93), "mae": ("explained", 0.5), "video": ("accuracy", 0.95)}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNED)
def test_the_recipes_learn(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", name, "--out", str(tmp_path / name)]) == 0, capsys.readouterr().err
    metric, least = LEARNED[name]
    assert json.loads((tmp_path / name / "evaluation.json").read_text())["metrics"][metric] > least
