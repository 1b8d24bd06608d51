"""What `pip install qkv` brings is enough to train, generate, convert and look; recipes that need more say so at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from built_wheel import copied_sources

import qkv
from qkv.cli import main
from qkv.core.optional_libraries import EXTRAS, is_installed
from qkv.runs.evaluate.evaluate import evaluate_run

ROOT = Path(__file__).parents[1]
BROUGHT = {"huggingface_hub"}  # by tokenizers
MOVED = {module for extra in EXTRAS for module in extra.modules} - BROUGHT | {"sklearn", "pandas", "transformers"}
TINY = {"model.d_model": 16, "model.n_layers": 1, "model.n_heads": 2, "data.train": 40, "evaluation.test_examples": 4}
SIZES = ROOT / "docs" / "examples" / "installed_sizes.py"


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which only what the base needs can be imported."""
    for name in [*MOVED, *(name for name in sys.modules if name.partition(".")[0] in MOVED)]:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("base")
def test_the_base_trains_generates_converts_and_looks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not any(map(is_installed, MOVED))
    changes = {**TINY, "evaluation.metrics": None, "training.compile": False}
    model = qkv.train("reverse", tmp_path / "run", changes=changes, steps=2, progress=True)
    said = " ".join(capsys.readouterr().out.split())
    assert "without bleu and chrf, whose library is not installed: pip install 'qkv[translate]'" in said
    assert set(evaluate_run(model, max_examples=2).metrics) == {"loss", "exact_match", "perplexity", "bits_per_byte"}
    assert main(["look", str(tmp_path / "run"), "g h", "--out", str(tmp_path / "picture.svg")]) == 0
    assert main(["look", str(tmp_path / "run"), "g h", "--out", str(tmp_path / "picture.png")]) == 2
    assert "needs PIL, which is not installed: pip install 'qkv[vision]'" in capsys.readouterr().err


@pytest.mark.usefixtures("base")
@pytest.mark.parametrize(
    ("recipe", "missing"),
    [
        ("localise", "babel, which is not installed: pip install 'qkv[translate]'"),
        ("detect", "scipy and pycocotools, which are not installed: pip install 'qkv[vision]'"),
        ("upscale", "PIL, which is not installed: pip install 'qkv[vision]'"),
        ("caption", "sacrebleu, which is not installed: pip install 'qkv[translate]'"),
        ("recognize-ctc", "jiwer, which is not installed: pip install 'qkv[audio]'"),
        ("music", "mido, which is not installed: pip install 'qkv[audio]'"),
    ],
)
def test_a_recipe_that_needs_an_extra_says_so_at_its_start(tmp_path: Path, recipe: str, missing: str) -> None:
    with pytest.raises(ValueError) as error:
        qkv.train(recipe, tmp_path / "run", progress=False)
    assert str(error.value) == f"the recipe {recipe} needs {missing}"
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("base")
def test_metrics_that_are_asked_for_are_not_left_out(tmp_path: Path) -> None:
    changes = {**TINY, "evaluation.metrics": ["exact-match", "chrf", "wer"]}
    with pytest.raises(ValueError, match=r"the recipe reverse needs sacrebleu and jiwer, .*'qkv\[eval\]'"):
        qkv.train("reverse", tmp_path / "run", changes=changes, progress=False)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_wheel_alone_in_a_clean_environment(tmp_path: Path) -> None:
    """Its dependencies are resolved by pip, which needs PyPI."""
    copy = copied_sources(tmp_path / "project")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"QKV_PREBUILT": "0", "OMP_NUM_THREADS": "1"}

    def run(*command: object, fails: bool = False) -> str:
        done = subprocess.run(
            list(map(str, command)), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900
        )
        assert (done.returncode != 0) == fails, done.stderr
        return done.stdout + done.stderr

    build = f"import os; os.chdir({str(copy)!r}); from setuptools.build_meta import build_wheel; build_wheel('..')"
    run(sys.executable, "-c", build)
    (wheel,) = tmp_path.glob("*.whl")
    run(sys.executable, "-m", "venv", "clean")
    pip = (tmp_path / "clean" / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    torch_version = torch.__version__.partition("+")[0]
    try:
        run(*pip, f"torch=={torch_version}", wheel)
    except AssertionError as error:
        pytest.skip(f"pip can't install the wheel with torch {torch_version} here: {str(error).splitlines()[-1][:200]}")
    qkv_command = tmp_path / "clean" / "bin" / "qkv"
    (tmp_path / "text.txt").write_text(("The quick brown fox jumps over the lazy dog. " * 8 + "\n\n") * 40, "utf-8")
    sizes = (
        "tokenizer.vocab_size=300",
        "model.d_model=32",
        "model.n_layers=1",
        "model.n_heads=2",
        "batching.context=32",
    )
    run(qkv_command, "train", "lm", "data.path=text.txt", *sizes, "training.max_steps=20", "--out", "run")
    assert run(qkv_command, "generate", "run", "The quick", "--max-new-tokens", "5").strip()
    run(qkv_command, "convert", "run", "hub", "--to", "hub")
    assert run(qkv_command, "generate", "hub", "The quick", "--max-new-tokens", "5").strip()
    run(qkv_command, "look", "run", "The quick brown fox", "--out", "page.html")
    assert "all 12 that qkv needs" in " ".join(run(qkv_command, "doctor", "--no-measure").split())
    assert "pip install 'qkv[translate]'" in run(qkv_command, "demo", "--out", "demo", fails=True)
    assert not (tmp_path / "demo").exists()
    last = run(tmp_path / "clean" / "bin" / "python", SIZES).splitlines()[-1].split()
    assert int(last[0]) <= 30 and float(last[2]) <= 60, last
