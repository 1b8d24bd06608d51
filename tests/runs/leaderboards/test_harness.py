"""Options of outputs, as `--gen-kwargs` gives them to lm-evaluation-harness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from own_tasks import own_tasks, saved

import qkv
from qkv.cli import main
from qkv.cli.evaluate import _gen_kwargs
from qkv.runs.leaderboards.tasks import evaluate_tasks


@pytest.mark.slow
def test_options_of_outputs_take_the_place_of_the_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lm_eval")
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    from qkv.runs.leaderboards import harness

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    tasks, names = own_tasks(tmp_path / "tasks"), ["own_outputs", "own_choices"]
    model, tokenizer = saved(tmp_path / "model")
    mine: list[str] = []
    generate = harness.HarnessModel.generate_until
    monkeypatch.setattr(
        harness.HarnessModel, "generate_until", lambda self, *a, **k: mine.extend(out := generate(self, *a, **k)) or out
    )
    given: dict[str, Any] = {"max_gen_toks": 3, "until": ["w5"], "num_beams": 2, "do_sample": False}
    found = evaluate_tasks(qkv.load(tmp_path / "model", "cpu"), names, include_path=tasks, gen_kwargs=given)
    theirs = HFLM(pretrained=model, tokenizer=tokenizer, backend="causal", device="cpu", batch_size=4, max_length=64)
    report = simple_evaluate(
        model=theirs, tasks=["own_outputs"], task_manager=TaskManager(include_path=str(tasks)), gen_kwargs=dict(given)
    )
    assert mine == [
        one["resps"][0][0] for one in sorted(report["samples"]["own_outputs"], key=lambda one: one["doc_id"])
    ]
    assert found.notes == ["generation options have no effect on own_choices, which compare likelihoods"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("temprature=0.7", "there is no generation option 'temprature'; did you mean 'temperature'?"),
        (
            "temperature=0.7,top_k=3",
            "temperature is for sampling, which most tasks turn off; give do_sample=true beside it",
        ),
        ("max_gen_toks", "--gen-kwargs takes options such as temperature=0.7,top_k=20, not 'max_gen_toks'"),
        ("top_k=3,top_k=4", "--gen-kwargs gives top_k more than once; give it once"),
    ],
)
def test_wrong_options_of_outputs_are_told(given: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "small-english", "--tasks", "hellaswag", "--gen-kwargs", given]) == 2
    assert said in capsys.readouterr().err


def test_options_of_outputs_are_read() -> None:
    assert _gen_kwargs(["max_gen_toks=64,do_sample=true", "until=['a,b', 'c'],temperature=0.7"]) == {
        "max_gen_toks": 64,
        "do_sample": True,
        "until": ["a,b", "c"],
        "temperature": 0.7,
    }
    assert _gen_kwargs([]) is None
