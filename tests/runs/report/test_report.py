"""The page of a run: whole and offline, whatever the run has or lacks, and whatever its texts say."""

from __future__ import annotations

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

from qkv.core.metrics.display import display_of
from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.spec import TokenizerSpec
from qkv.io.directories.lock import locked
from qkv.io.directories.run_config import Use
from qkv.io.families import preset
from qkv.look import formatting
from qkv.nn.models.build import build
from qkv.runs.inference.run import Run
from qkv.runs.report import report
from qkv.runs.report.report import write_report
from qkv.runs.report.story import Section, Story

HOSTILE = '</title><script>alert("1")</script><img onerror=y>'
SAMPLES = [
    {"source": "<de> 3 days ago", "target": "vor 3 Tagen", "output": "vor 3 Tagen"},
    {"source": "<fr> 3 days ago", "target": "il y a 3 jours", "output": "il y a 4 jours", "score": -0.25},
    {"source": f"<fr> {HOSTILE}", "target": HOSTILE, "output": HOSTILE + "!"},
]
VOID = {"meta", "img", "br", "link", "input"}


class Page(HTMLParser):
    """Reads a page strictly enough: tags close in order; texts, attributes and classes are collected."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())

    def classes(self) -> list[str]:
        return [value or "" for name, value in self.attributes if name == "class"]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A finished run's files, without a model."""
    train_lines = [
        {"type": "train", "step": s, "loss": 9 / s, "nll": 8 / s, "lr": s / 1e5, "grad_norm": 1.0, "tokens": 400 * s,
         "tokens_per_s": 15_000.0, "mfu": 0.42, "elapsed": s / 10}
        for s in range(10, 110, 10)
    ]  # fmt: skip
    eval_lines = [
        {"type": "eval", "step": s, "loss": 8.5 / s, "exact_match": s / 200, "elapsed": 1.0} for s in (50, 100)
    ]
    lines = [{"type": "event", "step": 0, "event": "started"}, *train_lines, *eval_lines]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"type": "tra')
    (tmp_path / "recipe.yaml").write_text("name: localise\ndescription: dates\n")
    evaluation = {
        "split": "test",
        "examples": 2000,
        "metrics": {"exact_match": 0.9815, "bleu": 99.1},
        "signatures": {"bleu": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"},
    }
    (tmp_path / "evaluation.json").write_text(json.dumps(evaluation))
    (tmp_path / "samples.json").write_text(json.dumps(SAMPLES))
    return tmp_path


def _trained(folder: Path, family: str, **sizes: Any) -> Path:
    """A run with a model as small as they come, untrained."""
    spec = TokenizerSpec.from_dict({"kind": "char", "special": ["<de>", "<fr>"]})
    tokenizer = train(spec, iter([s[key] for s in SAMPLES for key in ("source", "target")]))
    sizes = {"vocab_size": tokenizer.vocab_size, "d_model": 16, "n_layers": 2, "n_heads": 2, **sizes}
    task: Use = "translate" if family == "transformer" else "continue"
    Run(build(preset(family, **sizes), seed=0).eval(), tokenizer, task=task).save(folder / "model")
    for file in (folder / "model").iterdir():
        file.rename(folder / file.name)
    (folder / "model").rmdir()
    (folder / "recipe.yaml").unlink(missing_ok=True)  # the fixture's is only a name
    return folder


def test_the_page_says_what_the_run_did(run_dir: Path):
    page = Page(write_report(run_dir))
    text = "\n".join(page.texts)
    assert "Trained for 100 steps on 40k tokens, in 10 s." in text
    assert "98.15 %" in text and "test split, 2,000 examples" in text and "99.10" in text
    assert "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0" in text
    assert torch.__version__ in text
    found = json.loads((run_dir / "evaluation.json").read_text())
    found |= {"available": 9000, "counts": {"bleu": 1500}, "notes": ["500 skipped"]}
    found["metrics"]["loss"] = None
    (run_dir / "evaluation.json").write_text(json.dumps(found))
    text = "\n".join(Page(write_report(run_dir)).texts)
    assert "test split, 2,000 of 9,000 examples. 500 skipped." in text
    assert "version:2.6.0; over 1,500 examples" in text and "not finite" in text
    assert {"Loss (nats per token)", "Exact match on held-out data", "Learning rate", "Tokens per second"} <= set(
        page.texts
    )
    assert "1 of these 3 equal the truth." in text
    assert page.classes().count("right") == 1 and page.classes().count("wrong") == 2


@pytest.mark.parametrize(
    ("events", "sentence"),
    [
        ([], ""),
        (
            ["started"],
            "This training has not ended: it was killed or it failed; continue it with: qkv train {} --resume",
        ),
        (
            ["started", "interrupted"],
            "This training was interrupted after step 7; continue it with: qkv train {} --resume",
        ),
        (["interrupted", "resumed"], "This training has not ended: it was killed or it failed"),
        (["started", "ended"], "This training ended without an evaluation of its final weights; continue it with"),
    ],
)
def test_an_unfinished_run_says_so(tmp_path: Path, events: list[str], sentence: str) -> None:
    lines = [{"type": "event", "step": 7, "event": event} for event in events]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    story = Story.read(tmp_path)
    assert story.unfinished.startswith(sentence.format(tmp_path)) and bool(story.unfinished) == bool(sentence)
    if sentence:
        assert story.unfinished in Page(write_report(tmp_path)).texts


def test_a_running_training_is_not_called_killed(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"type": "event", "step": 0, "event": "started"}\n')
    with locked(tmp_path):
        assert Story.read(tmp_path).unfinished.startswith("This training has not ended yet: process ")


def test_numbers_near_the_truth_are_neither_right_nor_wrong(run_dir: Path):
    near = {"source": "a | b", "output": "0.97", "target": "1.00", "graded": True}
    page = Page(write_report(run_dir, [near, {**near, "output": "1.00"}]))
    text = "\n".join(page.texts)
    assert "0.97" in text and "1.00" in text and "of these 2" not in text
    assert not {"right", "wrong"} & set(page.classes()) and "mark" not in page.tags


def test_the_page_is_whole_offline_and_still(run_dir: Path):
    page = Page(write_report(run_dir))
    assert not {"script", "img", "link", "iframe", "object"} & set(page.tags)
    assert not {"src", "srcset"} & {name for name, _ in page.attributes}
    assert {value for name, value in page.attributes if name == "href"} <= {"attention.html"}
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    raw = (run_dir / "report.html").read_text(encoding="utf-8")
    assert "http" not in raw.replace("http-equiv", "") and "@import" not in raw and "url(" not in raw


@pytest.mark.parametrize("metric, first", [("bleu", "BLEU"), ("exact_match", "Exact match"), ("loss", "Exact match")])
def test_what_the_best_weights_were_chosen_by_stands_first(metric: str, first: str) -> None:
    story = Story(
        Path("run"),
        recipe={"training": {"metric": metric}},
        evaluation={"split": "test", "examples": 9, "metrics": {"loss": 1.2, "exact_match": 0.1, "bleu": 31.0}},
    )
    assert report._facts(story)[0][0] == first


def test_hostile_words_stay_words(run_dir: Path):
    (run_dir / "recipe.yaml").write_text(json.dumps({"name": HOSTILE}))
    page = Page(write_report(run_dir))
    assert "script" not in page.tags and "img" not in page.tags
    assert f"<fr> {HOSTILE}" in page.texts and HOSTILE in page.texts


def test_what_a_run_lacks_is_left_out(tmp_path: Path):
    assert "This run has written nothing down yet." in Page(write_report(tmp_path)).texts
    (tmp_path / "metrics.jsonl").write_text('{"type": "train", "step": 1, "loss": "NaN", "lr": 0.1}\n')
    assert "Learning" in Page(write_report(tmp_path)).texts


def test_attention_of_a_translator_is_drawn_and_kept(run_dir: Path):
    _trained(run_dir, "transformer", d_ff=32)
    page = Page(write_report(run_dir))
    kept = json.loads((run_dir / "attention.json").read_text())
    assert [picture["title"] for picture in kept] == ["<de> 3 days ago", SAMPLES[2]["source"]]
    assert kept[0]["columns"][0] == "<de>" and kept[0]["columns"][-1] == "</s>"
    assert "".join(kept[0]["rows"]) == "vor▁3▁Tagen</s>"
    weights = torch.tensor(kept[0]["layers"][-1]["weights"])
    assert weights.shape == (2, len(kept[0]["rows"]), len(kept[0]["columns"]))
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]), atol=5e-3, rtol=0)
    assert page.classes().count("attention") == 2
    assert any("Source tokens across, target tokens down" in text for text in page.texts)
    assert "Parameters" in page.texts


def test_a_language_model_shows_its_own_attention(run_dir: Path):
    _trained(run_dir, "gpt", max_positions=64)
    samples = [{"source": "3 days", "output": " ago"}]
    page = Page(write_report(run_dir, samples))
    kept = json.loads((run_dir / "attention.json").read_text())
    assert len(kept) == 1 and kept[0]["rows"] == kept[0]["columns"]
    assert "".join(kept[0]["rows"]).endswith("3▁days▁ago")
    assert page.classes().count("open") == 1
    weights = torch.tensor(kept[0]["layers"][0]["weights"])
    assert torch.equal(weights, weights.tril())


def test_attention_that_was_kept_is_shown_where_the_model_is_gone(run_dir: Path):
    _trained(run_dir, "transformer", d_ff=32)
    write_report(run_dir)
    (run_dir / "model.safetensors").unlink()
    assert Page(write_report(run_dir)).classes().count("attention") == 2


def test_a_run_that_cannot_be_loaded_is_reported_all_the_same(run_dir: Path):
    texts = Page(write_report(run_dir)).texts
    assert any(text.startswith("Not drawn, because the run can't be loaded: the run in") for text in texts)
    assert "Learning" in texts


def test_the_machine_matches_the_first_report(run_dir: Path):
    (run_dir / "machine.json").write_text(json.dumps({"processor": "another machine", "cores": 3, "torch": "1.0"}))
    assert {"another machine", "3 cores", "1.0"} <= set(Page(write_report(run_dir)).texts)


def test_a_section_can_be_added(run_dir: Path, monkeypatch: pytest.MonkeyPatch):
    def forecast(story: Story) -> Section | None:
        return Section("Forecast", report.tag("p", f"{story.name}: rain"))

    monkeypatch.setattr(report, "SECTIONS", [*report.SECTIONS, forecast])
    assert "localise: rain" in Page(write_report(run_dir)).texts


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("samples.json", '[{"source": "a"}]', "samples.json is not a list of samples"),
        ("samples.json", "{", "samples.json is not valid JSON"),
        ("evaluation.json", "[]", "evaluation.json holds a list, not an object"),
        ("attention.json", "[1]", "attention.json does not hold attention pictures"),
    ],
)
def test_a_malformed_file_is_named(run_dir: Path, name: str, content: str, said: str):
    (run_dir / name).write_text(content)
    with pytest.raises(ValueError, match=said):
        write_report(run_dir)


def test_a_directory_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(ValueError, match=r"there is no run directory .*nowhere"):
        write_report(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("entity_recall", "Recall of entities 99.80 %"),
        ("exact_answers", "Exact answers 99.80 %"),
        ("giou", "Loss of boxes' overlap 0.998"),
        ("next_sentence", "Loss of next sentences 0.998"),
        ("spearman", "Spearman 0.998"),
    ],
)
def test_parts_of_a_measure_are_written_as_it_is(key: str, said: str) -> None:
    assert f"{display_of(key).title} {formatting.shown(key, 0.998)}" == said


def test_the_metrics_of_tasks_have_their_titles_in_a_fresh_process(run_dir: Path) -> None:
    (run_dir / "recipe.yaml").write_text("name: shapes\ntask: {kind: image-classify}\n")
    (run_dir / "evaluation.json").write_text('{"split": "test", "examples": 2, "metrics": {"mcc": 0.5, "top5": 0.25}}')
    program = f"from qkv.runs.report.report import write_report; write_report({str(run_dir)!r})"
    subprocess.run([sys.executable, "-c", program], check=True)
    texts = Page(run_dir / "report.html").texts
    assert {"Matthews correlation", "0.500", "Top-5 accuracy", "25.00 %"} <= set(texts)


def test_charts_have_at_least_two_points_of_quality_and_a_value_other_than_0(run_dir: Path):
    def titles(scores: list[float], mfu: float) -> list[str]:
        lines = [{"type": "train", "step": i, "loss": 1.0, "mfu": mfu} for i in (1, 2)]
        lines += [{"type": "eval", "step": i, "accuracy": score} for i, score in enumerate(scores)]
        (run_dir / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return Page(write_report(run_dir)).texts

    drawn = titles([0.2, 0.4], 0.3)
    assert "Accuracy on held-out data" in drawn and "Model FLOPs utilization" in drawn
    assert "Accuracy on held-out data" not in titles([0.4], 0.3)
    assert "Accuracy on held-out data" not in titles([0.0, 0.0], 0.3)
    assert "Model FLOPs utilization" not in titles([0.4], 0.0)
