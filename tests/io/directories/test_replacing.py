"""What may lie in a directory that is replaced, by name and content, and when a model is replaced."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import qkv
from qkv.cli import main
from qkv.core import atomic
from qkv.io.directories.layout import MODEL, RUN
from qkv.nn.models.transformer import TransformerModel


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model().save(tmp_path_factory.mktemp("model") / "m")


def model(**sizes: int) -> TransformerModel:
    return qkv.build(qkv.preset("gpt2", **{"d_model": 16, "n_layers": 1, "n_heads": 2, "vocab_size": 32, **sizes}))


OTHERS = {
    "vocab.json": ('["a", "b"]', '{"a": "b"}', "a\nb"),
    "tokenizer_config.json": ('{"mine": 1}',),
    "special_tokens_map.json": ('["<s>"]',),
    "chat_template.jinja": ("notes on chats",),
    "recipe.yaml": ("flour: 200 g\n",),
    "model.safetensors": ("weights of mine",),
    "source.spm": ("text",),
    "config.json": ('{"editor": "vim"}', "[1]"),
}


@pytest.mark.parametrize(("name", "content"), [(name, content) for name, all in OTHERS.items() for content in all])
def test_a_file_of_the_users_with_a_name_of_ours_keeps_a_model_from_being_replaced(
    saved: Path, tmp_path: Path, name: str, content: str
) -> None:
    target = shutil.copytree(saved, tmp_path / "m")
    (target / name).write_text(content)
    with pytest.raises(
        ValueError, match=f"{name} has the name of a file of a model's directory, but holds something else"
    ):
        model().save(target, overwrite=True)
    assert (target / name).read_text() == content


RUNS = {
    "report.html": "<html><title>Quarterly report</title>",
    "evaluation.json": '{"teacher": "good"}',
    "samples.json": '[{"blood": 1}]',
    "metrics.jsonl": '{"loss": 1}\n',
    "attention.json": "{}x",
    "checkpoints/notes.txt": "mine",
    "adapter/README.md": "mine",
    "logs/mine.log": "mine",
    "tensorboard/plan.md": "mine",
    "checkpoints": "a file",
}


@pytest.mark.parametrize("name", RUNS)
def test_a_file_of_the_users_keeps_a_run_from_being_replaced(tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.yaml").write_text("name: x\ndata:\n  kind: text\n")
    RUN.check(run)
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).write_text(RUNS[name])
    with pytest.raises(ValueError, match=r"is not replaced; move that away, or choose another directory"):
        RUN.check(run)


def test_what_a_training_writes_is_replaceable(trained_lm: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained_lm, tmp_path / "run")
    assert {"report.html", "metrics.jsonl", "evaluation.json", "samples.json"} <= {path.name for path in run.iterdir()}
    assert RUN.check(run)


def test_files_of_earlier_versions_are_replaceable(tmp_path: Path) -> None:
    """Their keys, as versions since the first wrote them; and what a killed process left of a line."""
    (tmp_path / "recipe.yaml").write_text("name: x\ntraining:\n  max_steps: 1\n")
    (tmp_path / "metrics.jsonl").write_text('{"ty')
    for name, value in {
        "evaluation.json": {"split": "test", "examples": 1, "metrics": {}},
        "start.json": {"date": "", "device": "cpu", "examples": "", "command": None},
        "machine.json": {"processor": "x", "cores": 2, "torch": "2"},
        "samples.json": [{"source": "a", "output": "b"}],
        "attention.json": [],
        "extremes.json": {"by": "x", "best": [], "worst": []},
        "generation_config.json": {"max_new_tokens": 3},
    }.items():
        (tmp_path / name).write_text(json.dumps(value))
    assert RUN.check(tmp_path)


def test_another_model_is_replaced_only_if_asked(saved: Path, tmp_path: Path) -> None:
    target, other = shutil.copytree(saved, tmp_path / "m"), model(n_layers=2)
    with pytest.raises(
        ValueError, match=r"m is a model's directory already; replace it with overwrite=True \(--overwrite\), or choose"
    ):
        other.save(target)
    other.save(target, overwrite=True)
    other.save(target)  # its own
    run = qkv.load(target, "cpu")
    assert run.model.spec.decoder.n_layers == 2
    with pytest.raises(ValueError, match="where the model was loaded from"):
        run.save(target, overwrite=True)
    assert MODEL.check(target)
    shutil.rmtree(target)
    model().save(target)
    with pytest.raises(ValueError, match="overwrite=True"):  # what lies there now is another's
        other.save(target)


@pytest.mark.parametrize("below", ["x", "x/y"])
def test_below_a_file_nothing_is_written(tmp_path: Path, below: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.txt").write_text("mine")
    said = r"c.txt is a file, so .* can't be written; choose another place"
    place = tmp_path / "c.txt" / below
    for write in (model().save, lambda path: atomic.write_file(path, b""), atomic.make_folder):
        with pytest.raises(ValueError, match=said):
            write(place)
    with pytest.raises(ValueError, match="is a directory; give the name of a file"):
        atomic.write_file(tmp_path, b"")
    with pytest.raises(OSError, match=said):  # as the disk's own errors, for callers that can do without the file
        atomic.write_file(place, b"")
    assert main(["list", "patterns", "--out", str(place)]) == 2
    assert re.match(rf"qkv: .*{said}\n$", capsys.readouterr().err)
    assert [path.name for path in tmp_path.iterdir()] == ["c.txt"]
