"""Twelve jobs of a newcomer's first hour, each done with documented commands and functions alone, on data that they make."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from built_wheel import built_wheel, copied_sources
from PIL import Image

import qkv
from qkv.cli import main

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
WORDS = ("the", "a", "red", "blue", "old", "dog", "cat", "house", "tree", "river", "sees", "likes", "finds", "today")
QUICK = ["training.max_steps=4", "evaluation.examples=4", "evaluation.test_examples=4"]
SMALL = [*QUICK, "tokenizer.vocab_size=300", "model.d_model=32", "model.n_layers=1", "model.n_heads=2", "model.d_ff=64"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def texts(n: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(4, 9))) for _ in range(n)]


def qkv_(*words: str) -> None:
    assert main(list(words)) == 0, words


def test_1_a_translator_from_a_tsv(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"{a}\t{a[::-1]}\n" for a in texts(300))
    Path("pairs.tsv").write_text("english\tgerman\n" + rows)
    qkv_("train", "translate", "data.path=pairs.tsv", "data.source_column=english", "data.target_column=german", *SMALL)
    qkv_("translate", "runs/translate", "the old dog sees a tree")
    qkv_("eval", "runs/translate", "--out", "outputs.jsonl")
    assert {"source", "hypothesis", "references"} <= set(json.loads(Path("outputs.jsonl").read_text().splitlines()[0]))
    qkv_("convert", "runs/translate", "exported", "--to", "hub")
    assert json.loads(Path("exported/config.json").read_text())["model_type"]


def test_2_a_classifier_from_a_csv(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("reviews.csv").write_text(
        "text,label\n" + "".join(f"{t},{'bad' if 'dog' in t else 'good'}\n" for t in texts(300))
    )
    qkv_("train", "reviews.csv", "--yes", *SMALL)
    capsys.readouterr()
    qkv_("classify", "runs/classify", "the old dog sees a tree")
    assert "good" in capsys.readouterr().out


def test_3_a_folder_of_pictures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, color in (("red", (200, 0, 0)), ("blue", (0, 0, 200))):
        Path("photos", name).mkdir(parents=True)
        for i in range(40):
            Image.new("RGB", (24, 24), color).save(f"photos/{name}/{i}.png")
    qkv_("train", "photos", "--yes", *QUICK)
    qkv_("classify", "runs/vit", "photos/red/0.png")
    assert "red" in capsys.readouterr().out


def test_4_a_chat_file_with_lora(folder: Path) -> None:
    Path("book.txt").write_text("\n".join(texts(400)))
    qkv_("train", "lm", "data.path=book.txt", *SMALL)
    lines = zip(texts(80), texts(80, 1), strict=True)
    turns = [[{"role": "user", "content": a}, {"role": "assistant", "content": b}] for a, b in lines]
    Path("chats.jsonl").write_text("".join(json.dumps({"messages": turn}) + "\n" for turn in turns))
    qkv_("train", "chat", "data.path=chats.jsonl", "model=runs/lm", "adapter={kind: lora, rank: 2}", *QUICK)
    assert qkv.load("runs/chat", "cpu").chat([{"role": "user", "content": "the dog"}], max_new_tokens=4) is not None


def test_5_sentence_embeddings(folder: Path) -> None:
    qkv_("train", "similarity", *SMALL)
    Path("sentences.txt").write_text("\n".join(texts(20)) + "\n")
    with Path("sentences.txt").open() as lines:
        sentences = [line.strip() for line in lines]
    qkv_("embed", "runs/similarity", *sentences, "--out", "vectors.npy")
    vectors = np.load("vectors.npy")
    assert vectors.shape[0] == 20
    np.testing.assert_allclose(vectors, np.asarray(qkv.load("runs/similarity", "cpu").embed(sentences)), atol=1e-5)


def test_6_a_forecast_of_a_csv(folder: Path) -> None:
    rows = "".join(
        f"2024-01-{1 + i // 24:02} {i % 24:02}:00,{math.sin(i / 4):.4f},{math.cos(i / 7):.4f}\n" for i in range(600)
    )
    Path("sensors.csv").write_text("when,inside,outside\n" + rows)
    qkv_("train", "sensors.csv", "--yes", *QUICK)
    metrics = json.loads(Path("runs/forecast/evaluation.json").read_text())["metrics"]
    assert {"mse", "last_value_mse"} <= set(metrics)


def test_7_a_frame_from_pandas(folder: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="a frame of pandas is trained on")
    frame = pandas.DataFrame({"text": texts(200), "label": ["bad" if "dog" in text else "good" for text in texts(200)]})
    changes = dict(setting.split("=", 1) for setting in SMALL if not setting.startswith("training"))
    numbers = {key: int(value) for key, value in changes.items()}
    run = qkv.train("classify", "runs/frame", data=frame, changes=numbers, steps=4, progress=False)
    assert run.classify("the old dog")


def test_8_a_directory_of_the_hub_in_and_out(folder: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="makes the directory")
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 64, "vocab_size": 300}
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).save_pretrained(
        "theirs"
    )
    run = qkv.load("theirs", "cpu")
    run.model.save("ours")
    qkv_("convert", "ours", "back", "--to", "hub")
    again = transformers.GPT2LMHeadModel.from_pretrained("back")
    before = transformers.GPT2LMHeadModel.from_pretrained("theirs")
    for one, other in zip(again.parameters(), before.parameters(), strict=True):
        assert (one == other).all()


def test_9_a_mechanism_of_ones_own(folder: Path) -> None:
    Path("parts.py").write_text(
        '"""A pattern."""\n'
        "from qkv.nn.patterns.algebra import Pattern\n\n\n"
        'class Even(Pattern, kind="even-of-the-first-hour"):\n'
        '    """A token sees the earlier ones at an even distance."""\n\n'
        "    def allowed(self, q, k, head=None):\n"
        "        return (q.position >= k.position) & ((q.position - k.position) % 2 == 0)\n"
    )
    Path("book.txt").write_text("\n".join(texts(400)))
    pattern = "model.replace={decoder.blocks.*.attention.pattern: even-of-the-first-hour}"
    qkv_("--import", "parts.py", "train", "lm", "data.path=book.txt", pattern, *SMALL)
    qkv_("--import", "parts.py", "generate", "runs/lm", "the old", "--max-new-tokens", "3")


def test_10_three_variants_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    variants = "{sinusoidal: {}, rotary: {model.*.position: rotary}, none: {model.*.position: none}}"
    qkv_("train", "reverse", f"compare={variants}", "--out", "runs/positions", *QUICK, "data.train=200")
    page = Path("runs/positions/report.html").read_text()
    assert all(name in page for name in ("sinusoidal", "rotary", "none"))


def test_11_the_report_is_shown(folder: Path) -> None:
    qkv_("train", "reverse", *QUICK, "data.train=200")
    before = Path("runs/reverse/report.html").stat().st_mtime_ns
    qkv_("report", "runs/reverse")
    page = Path("runs/reverse/report.html").read_text()
    assert Path("runs/reverse/report.html").stat().st_mtime_ns > before
    assert (
        "qkv train reverse" in page
        and "<script src" not in page
        and "https://" not in page.replace("https://arxiv", "")
    )


def test_12_a_wheel_in_a_clean_environment(folder: Path) -> None:
    """The wheel is installed beside the packages of this environment, which would have to be downloaded otherwise."""
    wheel = built_wheel(copied_sources(folder / "project"), folder)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", "site", str(wheel)], check=True
    )
    program = "import qkv, sys; assert 'site' in qkv.__file__; from qkv.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "train", "reverse", *QUICK, "data.train=200"]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(folder / "site"), "PATH": ""}, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (folder / "runs/reverse/report.html").is_file()
