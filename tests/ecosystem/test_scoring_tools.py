"""Tools that embed, score and train on models of qkv: sentence-transformers, mteb, lm-eval, onnxruntime, accelerate."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from auto_models import bert, config, llama, words
from made_tokenizers import made

import qkv

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

TEXTS = [
    "the cat sat",
    "a mate of the cat:",
    "größer als gedacht",
    "the cats ate.",
    "on the mat,",
    "the cat and the mat,",
]


def encoder(path: Path) -> qkv.Run:
    """A BERT with ALiBi, which has no family, as `qkv convert --to hub` writes it."""
    import qkv.transformers  # registers the model type

    tokenizer = made("word")
    spec = bert().with_vocabulary(tokenizer.vocab_size).replace({"encoder.position": qkv.ALiBi(), "head": None})
    qkv.Run(qkv.build(spec, seed=3), tokenizer, task="read").save(path, to="hub")
    return qkv.load(path, "cpu")


def sentence_model(path: Path) -> Any:
    library = pytest.importorskip("sentence_transformers")
    from sentence_transformers import models

    reads = models.Transformer(str(path))
    return library.SentenceTransformer(modules=[reads, models.Pooling(32, "mean")], device="cpu")


def test_sentence_transformers_embeds_as_qkv_alone(tmp_path: Path) -> None:
    run = encoder(tmp_path)
    vectors = sentence_model(tmp_path).encode(TEXTS)
    numpy.testing.assert_allclose(run.embed_array(TEXTS, pooling="mean"), vectors, atol=1e-5)


def test_sentence_transformers_trains_the_model(tmp_path: Path) -> None:
    model = sentence_model((encoder(tmp_path), tmp_path)[1])
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.losses import CosineSimilarityLoss

    rows = [{"a": a, "b": b, "score": float(a[1] == b[1])} for a, b in zip(TEXTS, [*TEXTS[1:], TEXTS[0]], strict=True)]
    settings = {"max_steps": 3, "learning_rate": 1e-2, "report_to": [], "use_cpu": True, "save_strategy": "no"}
    arguments = SentenceTransformerTrainingArguments(str(tmp_path / "out"), logging_steps=1, **settings)
    loss = CosineSimilarityLoss(model)
    trainer = SentenceTransformerTrainer(model, arguments, train_dataset=Dataset.from_list(rows), loss=loss)
    before = model.encode(TEXTS)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 3 and abs(model.encode(TEXTS) - before).max() > 1e-3
    model.save(str(tmp_path / "tuned"))
    again = qkv.load(tmp_path / "tuned", "cpu").embed_array(TEXTS, pooling="mean")
    numpy.testing.assert_allclose(again, model.encode(TEXTS), atol=1e-5)


def test_mteb_scores_as_through_sentence_transformers(tmp_path: Path) -> None:
    mteb = pytest.importorskip("mteb")
    from made_mteb import MadeSTS

    from qkv.mteb import MtebEncoder

    run = encoder(tmp_path)

    def score(model: Any) -> float:
        result = mteb.evaluate(model, [MadeSTS()], cache=None, co2_tracker=False)
        return float(result.task_results[0].get_score())

    found = score(MtebEncoder(run))
    assert found == pytest.approx(score(sentence_model(tmp_path)), abs=1e-4) and abs(found) > 1e-3
    assert isinstance(MtebEncoder(str(tmp_path)), mteb.EncoderProtocol)


def test_qkv_eval_scores_a_task_of_mteb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mteb = pytest.importorskip("mteb")
    from made_mteb import MadeSTS

    from qkv.cli.app import app

    encoder(tmp_path / "model")
    monkeypatch.setattr(mteb, "get_tasks", lambda tasks=None: [MadeSTS()])
    arguments = ["eval", str(tmp_path / "model"), "--tasks", "MadeSTS", "--out", str(tmp_path / "report.json")]
    app(arguments, standalone_mode=False)
    said, report = capsys.readouterr().out, json.loads((tmp_path / "report.json").read_text())
    (scores,) = report["task_results"][0]["scores"]["test"]
    result = mteb.evaluate(sentence_model(tmp_path / "model"), [MadeSTS()], cache=None, co2_tracker=False)
    assert scores["main_score"] == pytest.approx(float(result.task_results[0].get_score()), abs=1e-4)
    assert "MadeSTS" in said


def test_lm_evaluation_harness_scores_as_qkv_alone(tmp_path: Path) -> None:
    pytest.importorskip("lm_eval")
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM
    from transformers import AutoModelForCausalLM

    import qkv.transformers  # registers the model type

    spec = llama(decoder__position=qkv.ALiBi())
    model = AutoModelForCausalLM.from_config(config(spec, seed=2)).eval()
    tokenizer, alone = words(), qkv.build(spec, seed=2).eval()
    harness = HFLM(pretrained=model, tokenizer=tokenizer, backend="causal", device="cpu", batch_size=3, max_length=32)
    pairs = [("w1 w2", " w3 w4"), ("w5", " w6"), ("w7 w8 w9", " w1"), ("w10", " w11 w12 w13 w14")]
    asked = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)]
    for (before, after), (found, greedy) in zip(pairs, harness.loglikelihood(asked), strict=True):
        start, ids = tokenizer(before)["input_ids"], tokenizer(before + after)["input_ids"]
        told = alone(torch.tensor([ids]))[0].log_softmax(-1)
        wanted = [float(told[i - 1, ids[i]]) for i in range(len(start), len(ids))]
        assert found == pytest.approx(sum(wanted), abs=1e-4)
        assert greedy == all(int(told[i - 1].argmax()) == ids[i] for i in range(len(start), len(ids)))
    until: Any = {"until": ["w0"], "max_gen_toks": 5, "do_sample": False}
    told = harness.generate_until([Instance("generate_until", {}, ("w1 w2", until), 0)])[0]
    ids = alone.generate(torch.tensor([tokenizer("w1 w2")["input_ids"]]), max_new_tokens=5, eos_id=2)[0, 2:]
    assert told.split() == tokenizer.decode(ids, skip_special_tokens=True).split("w0")[0].split()


def test_what_auto_classes_save_is_exported_to_onnx(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    from transformers import AutoModelForCausalLM

    import qkv.transformers  # registers the model type
    from qkv.runs.export.onnx import to_onnx

    spec = llama(decoder__position=qkv.ALiBi())
    model: Any = AutoModelForCausalLM.from_config(config(spec, seed=2)).eval()
    model.save_pretrained(tmp_path / "model")
    words().save_pretrained(tmp_path / "model")
    made = to_onnx(qkv.load(tmp_path / "model", "cpu"), tmp_path / "onnx")
    graph = next((tmp_path / "onnx").rglob("*.onnx"))
    session = runtime.InferenceSession(str(graph))
    assert made.error < 1e-4 and "input_ids" in {each.name for each in session.get_inputs()}


SCRIPT = """
import json, os, sys
import torch
sys.path.insert(0, sys.argv[1])
from auto_models import config, llama
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
import qkv.transformers

class Rows(torch.utils.data.Dataset):
    def __len__(self): return 12
    def __getitem__(self, i):
        ids = torch.arange(i + 5, i + 13)
        return {"input_ids": ids, "labels": ids}

ranks = int(os.environ.get("WORLD_SIZE", 1))
model = AutoModelForCausalLM.from_config(config(llama()))
settings = {"max_steps": 3, "per_device_train_batch_size": 4 // ranks, "learning_rate": 1e-2, "logging_steps": 1}
settings |= {"lr_scheduler_type": "constant", "report_to": [], "save_strategy": "no", "use_cpu": True}
if ranks > 1:
    settings["ddp_backend"] = "gloo"
trainer = Trainer(model, TrainingArguments(sys.argv[2], **settings), train_dataset=Rows())
trainer._get_train_sampler = lambda *args: None
trainer.train()
if trainer.is_world_process_zero():
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    torch.save({"losses": losses, "weights": model.state_dict()}, sys.argv[3])
"""


@pytest.mark.timeout(400)
def test_accelerate_trains_on_two_processes_as_on_one(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    (tmp_path / "script.py").write_text(SCRIPT)
    helpers, environment = str(Path(__file__).parents[1] / "helpers"), {**os.environ, "OMP_NUM_THREADS": "1"}
    launch = ["-m", "torch.distributed.run", "--nproc_per_node=2", "--master_port=29617"]
    for name, before in (("one", []), ("two", launch)):
        command = [sys.executable, *before, "script.py", helpers, "out", f"{name}.pt"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=350)
        assert done.returncode == 0, done.stderr[-2000:]
    one, two = (torch.load(tmp_path / f"{name}.pt") for name in ("one", "two"))
    assert two["losses"] == pytest.approx(one["losses"], abs=2e-4)
    for name, weight in one["weights"].items():
        torch.testing.assert_close(two["weights"][name], weight, atol=1e-5, rtol=1e-4)
