"""The recipes of tags, answers, symbols and music, cut short: from what is read to the report; and docs/data-tags.md."""

from __future__ import annotations

import json
import re
import shlex
import zipfile
from pathlib import Path

import pytest
from fast_subset import fast

from qkv.cli import main
from qkv.data.media import midi
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.batch_preview import preview

PAGE = Path(__file__).parents[3] / "docs" / "data-tags.md"
SHORT = [
    *("model.d_model=16", "model.d_ff=32", "model.n_layers=1", "model.n_heads=2", "batching.tokens=1024"),
    *("training.max_steps=2", "training.eval_every=2", "training.save_every=2", "training.schedule.warmup=1"),
    *("evaluation.examples=10", "evaluation.test_examples=10", "evaluation.samples=2"),
]
MEASURED = {
    "tag": {"accuracy", "entity_f1", "entity_precision", "entity_recall"},
    "answer": {"exact", "token_f1"},
    "protein": {"accuracy"},
    "music": {"frame_nll"},
}


@pytest.mark.parametrize("name", fast(MEASURED, "answer", "music"))
def test_a_recipe_trains_and_says_what_it_measured(name: str, tmp_path: Path) -> None:
    run = tmp_path / name
    assert main(["train", name, *SHORT, "data.train=200", "--out", str(run)]) == 0
    found = json.loads((run / "evaluation.json").read_text())["metrics"]
    assert set(found) == {"loss"} | MEASURED[name]
    samples = json.loads((run / "samples.json").read_text())
    assert len(samples) == 2 and all(isinstance(sample["output"], str) for sample in samples)
    page = (run / "report.html").read_text()
    assert ("audio/midi" in page) == (name == "music")
    assert main(["eval", str(run)]) == 0


@pytest.mark.parametrize("name", MEASURED)
def test_what_the_model_sees_is_shown(name: str) -> None:
    for row in preview(Recipe.load(name, ["data.train=100"])).rows:
        assert len(row.lines()) >= 2 and all(text for _, text in row.lines())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the page speaks of."""
    folder = tmp_path_factory.mktemp("page")
    block = "Peter\tB-PER\nBlackburn\tI-PER\nslept\tO\nin\tO\nroom\tO\n{}\tO\n\n"
    for name in ("train.conll", "dev.conll", "test.conll"):
        (folder / name).write_text("".join(block.format(n) for n in range(40)))
    rows = "".join(f"1\tdogs\tdog\tNOUN\n2\tbark{n}\tbark\tVERB\n\n" for n in range(60))
    (folder / "en-train.conllu").write_text(rows)
    asked = [
        {"context": f"Oslo has {n} rooms.", "qas": [{"id": "a", "question": "How many?", "answers": [
            {"text": str(n), "answer_start": 9}]}, {"id": "b", "question": "Who?", "is_impossible": True, "answers": []}]}
        for n in range(30)
    ]  # fmt: skip
    for name in ("train-v2.0.json", "dev-v2.0.json"):
        whole = {"data": [{"title": str(n), "paragraphs": [one]} for n, one in enumerate(asked)]}
        (folder / name).write_text(json.dumps(whole))
    strings = [f"{'ACDEFGHIKL'[n % 10]}MKT{'AVILG'[n % 5]}" * 3 for n in range(60)]
    for name, made in (
        ("sequences", strings),
        ("structure", ["HHHEC" * 3] * 60),
        ("mask", ["01111" * 3] * 60),
    ):
        (folder / f"{name}.fasta").write_text("".join(f">s{n}\n{text}\n" for n, text in enumerate(made)))
    lines = (
        f"The city {n} has a river that was bridged by Ann Tor in {1800 + n}. It rains there.\n" for n in range(80)
    )
    (folder / "articles.txt").write_text("".join(lines))
    (folder / "midi-files").mkdir()
    for n in range(12):
        (folder / "midi-files" / f"{n}.mid").write_bytes(midi.to_midi([(60 + n, 50), (62, 50), (64,)] * 4, 4))
    chords = [[[60 + n, 50], [62], []] * 4 for n in range(10)]
    with zipfile.ZipFile(folder / "splits.zip", "w") as archive:
        archive.writestr("splits/sequences.fasta", (folder / "sequences.fasta").read_text())
    (folder / "jsb-chorales-quarter.json").write_text(json.dumps(dict.fromkeys(("train", "valid", "test"), chords)))
    return folder


def commands() -> list[list[str]]:
    text = PAGE.read_text(encoding="utf-8").replace("\\\n", " ").replace(".json.gz", ".json")
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("qkv train")]


@pytest.mark.parametrize("words", fast(commands(), *commands()[::2]), ids=" ".join)
def test_the_commands_of_the_page_run(
    words: list[str], place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    own = [word for word in words if not word.startswith("model=")]
    small = ["batching.context=128", "model.max_positions=128"] if words[1] == "lm" else []
    out = [] if "--out" in words else ["--out", str(tmp_path / "run")]
    assert main([*own[:2], *SHORT, *small, *own[2:], *out]) == 0
