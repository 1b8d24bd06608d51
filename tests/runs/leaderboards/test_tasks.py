"""Tasks of lm-evaluation-harness: scores equal those of the harness's own backend for transformers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from auto_models import llama
from own_tasks import WORDS, own_tasks, saved

import qkv
from qkv.runs.leaderboards.tasks import TaskScores, evaluate_tasks


def by_name(scores: TaskScores) -> dict[tuple[str, str], float]:
    return {(one.task, one.metric): one.value for one in scores.scores}


@pytest.mark.slow  # the harness takes seconds to import
def test_scores_are_those_of_the_backend_for_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lm_eval")
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    tasks, names = own_tasks(tmp_path / "tasks"), ["own_choices", "own_outputs", "own_texts"]
    model, tokenizer = saved(tmp_path / "model")
    run = qkv.load(tmp_path / "model", "cpu")
    assert run.encode("w1 w2") == tokenizer("w1 w2")["input_ids"]
    found = evaluate_tasks(run, names, include_path=tasks)
    theirs = HFLM(pretrained=model, tokenizer=tokenizer, backend="causal", device="cpu", batch_size=4, max_length=64)
    manager = TaskManager(include_path=str(tasks))
    wanted = simple_evaluate(model=theirs, tasks=names, task_manager=manager, log_samples=False)["results"]
    for (task, metric), value in by_name(found).items():
        assert value == pytest.approx(wanted[task][f"{metric},none"], rel=1e-4), (task, metric)
    assert {task for task, _ in by_name(found)} == set(names)
    assert found.scores[0].examples == 30 and found.library.startswith("lm-evaluation-harness")
    limited = evaluate_tasks(run, ["own_choices"], include_path=tasks, limit=5, num_fewshot=0)
    assert limited.scores[0].examples == 5


@pytest.mark.slow
def test_every_answer_is_that_of_the_backend_for_transformers(tmp_path: Path) -> None:
    pytest.importorskip("lm_eval")
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    from qkv.lm_eval import HarnessModel

    model, tokenizer = saved(tmp_path / "model", decoder__position=qkv.ALiBi())
    ours = HarnessModel(str(tmp_path / "model"), max_length=24, device="cpu", show_progress=False)
    theirs = HFLM(pretrained=model, tokenizer=tokenizer, backend="causal", device="cpu", batch_size=3, max_length=24)
    draw = random.Random(1)
    contexts = ["", *(" ".join(draw.choices(WORDS, k=n)) for n in (1, 2, 9, 23, 40))]
    pairs = [(one, " ".join(["", *draw.choices(WORDS, k=n)])) for one in contexts for n in (1, 1, 3, 5)]
    asked = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)]
    for pair, mine, other in zip(pairs, ours.loglikelihood(asked), theirs.loglikelihood(asked), strict=True):
        assert mine == (pytest.approx(other[0], abs=1e-4), other[1]), pair
    assert ours.cut == 6  # contexts of 23 and 40 words do not fit beside their continuations
    texts = [Instance("loglikelihood_rolling", {}, (" ".join(draw.choices(WORDS, k=n)),), n) for n in (3, 24, 60)]
    assert ours.loglikelihood_rolling(texts) == pytest.approx(theirs.loglikelihood_rolling(texts), abs=1e-3)
    until: Any = {"until": ["w0", "w7"], "max_gen_toks": 6, "do_sample": False}
    asked = [Instance("generate_until", {}, (one, until), i) for i, one in enumerate(contexts[1:4])]
    assert ours.generate_until(asked) == theirs.generate_until(asked)


@pytest.mark.slow
@pytest.mark.parametrize("family", [True, False])
def test_what_qkv_wrote_is_read_as_by_qkv(family: bool, tmp_path: Path) -> None:
    """Texts begin with `<s>` as in training, and the task's length counts, not that of the run."""
    pytest.importorskip("lm_eval")
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM
    from made_tokenizers import made

    import qkv.transformers  # registers the model type
    from qkv.lm_eval import HarnessModel

    tokenizer = made("bpe")
    spec = llama(**({} if family else {"decoder__position": qkv.ALiBi()})).with_vocabulary(tokenizer.vocab_size)
    run = qkv.Run(qkv.build(spec, seed=5).eval(), tokenizer, qkv.Generation(max_new_tokens=3), "continue")
    run.save(tmp_path / "hub", to="hub")
    theirs = HFLM(str(tmp_path / "hub"), backend="causal", device="cpu", batch_size=2, dtype="float32")
    for ours in (HarnessModel(run, show_progress=False), HarnessModel(str(tmp_path / "hub"), device="cpu")):
        assert ours.run.generation.max_new_tokens == 3
        pairs = [("the cat sat", " on"), ("a mate", " of the cat"), ("", "mats")]
        asked = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)]
        for mine, other in zip(ours.loglikelihood(asked), theirs.loglikelihood(asked), strict=True):
            assert mine == (pytest.approx(other[0], abs=1e-4), other[1])
        assert ours.tok_encode("the cat") == theirs.tok_encode("the cat") == run.encode("the cat")
        until: Any = {"until": ["\n\n"], "max_gen_toks": 9, "do_sample": False}
        asked = [Instance("generate_until", {}, (pair[0], until), i) for i, pair in enumerate(pairs[:2])]
        outputs = theirs.generate_until(asked)
        assert ours.generate_until(asked) == outputs
        assert any(len(tokenizer.encode(text)) > 3 for text in outputs)


def test_what_a_run_can_not_do_is_told(tmp_path: Path) -> None:
    qkv.build(qkv.preset("vit-base-16", n_layers=1, d_model=16, n_heads=2, d_ff=16)).save(tmp_path / "pictures")
    pictures = qkv.load(tmp_path / "pictures", "cpu")
    with pytest.raises(ValueError, match="tasks of lm-evaluation-harness need a model that generates texts"):
        evaluate_tasks(pictures, ["hellaswag"])
    with pytest.raises(ValueError, match="names of one library"):
        evaluate_tasks(pictures, [])
