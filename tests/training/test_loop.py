import itertools
import json
import math
import os
import signal

import pytest
import torch
from train_stand_in import Tiny, batch, evaluate, open_stream, train

from qkv.core.batch import IGNORE, Batch
from qkv.training.checkpoints.checkpoint import MODEL, Checkpoints, load_state, load_tensors, step_of
from qkv.training.checkpoints.weights import model_tensors, read_tensors
from qkv.training.logging.metrics_file import read_metrics
from qkv.training.result import Diverged


def lines(out, type: str) -> list[dict]:
    return [line for line in read_metrics(out / "metrics.jsonl") if line["type"] == type]


def test_an_impossible_mfu_is_left_out(tmp_path, capsys):
    from qkv.training.loop import fit
    from qkv.training.objective import NextToken
    from qkv.training.settings import Training

    training = Training.from_dict({"max_steps": 20, "save_every": 20})
    fit(Tiny(), open_stream, NextToken(), training, out=tmp_path, flops_per_token=10.0, peak_flops=1e-3)
    assert [line["mfu"] for line in lines(tmp_path, "train")] == [None, None]
    assert capsys.readouterr().err.count("The MFU is left out") == 1


def test_a_run_learns_and_leaves_everything_it_promises(tmp_path):
    model = Tiny(dropout=0.0)
    options = {"flops_per_token": 10.0, "peak_flops": 1e6}
    from qkv.training.loop import fit
    from qkv.training.objective import NextToken
    from qkv.training.settings import Training

    training = Training.from_dict(
        {"max_steps": 60, "eval_every": 20, "save_every": 20, "optimizer": {"kind": "adamw", "lr": 0.02}}
    )
    training = training.replace(schedule={"kind": "linear", "warmup": 5})
    outcome = fit(model, open_stream, NextToken(), training, out=tmp_path, evaluate=evaluate, **options)
    assert outcome.ending == "max_steps" and not outcome.interrupted and "60 steps" in str(outcome)
    assert outcome.metrics["loss"] < 1.0 < math.log(13)
    train_lines = lines(tmp_path, "train")
    assert [line["step"] for line in train_lines] == [10, 20, 30, 40, 50, 60]
    assert train_lines[-1]["loss"] < train_lines[0]["loss"]
    for line in train_lines:
        assert line.keys() == {
            "type",
            "step",
            "loss",
            "nll",
            "lr",
            "grad_norm",
            "tokens",
            "tokens_per_s",
            "mfu",
            "elapsed",
        }
        assert line["mfu"] == pytest.approx(line["tokens_per_s"] * 1e-5)
        assert line["tokens"] == line["step"] * 24
    assert [line["lr"] for line in train_lines][-1] == 0.0 and train_lines[0]["lr"] == pytest.approx(0.02 * 50 / 55)
    assert [line["step"] for line in lines(tmp_path, "eval")] == [20, 40, 60]
    assert outcome.state.tokens == 60 * 24 and outcome.state.position == {"next": 60}
    assert step_of(outcome.checkpoint) == 60
    read = read_tensors(tmp_path / "model.safetensors")
    assert all(torch.equal(t, read[name]) for name, t in model_tensors(model).items())


def test_evaluation_leaves_no_trace(tmp_path):
    seen = [
        train(tmp_path / name, model := Tiny(), evaluate=one, final="last") and model_tensors(model)
        for name, one in (("with", evaluate), ("without", None))
    ]
    assert all(torch.equal(t, seen[1][name]) for name, t in seen[0].items())
    assert model.training


def test_the_best_weights_are_delivered_unless_the_last_are_wanted(tmp_path):
    def worse_after_five(model, step):
        return {"loss": 1.0 if step == 5 else float(step)}

    for final, step in (("best", 5), ("last", 12)):
        out = tmp_path / final
        outcome = train(out, evaluate=worse_after_five, final=final, keep=1)
        assert outcome.source == f"the weights of step {step}"
        wanted = load_tensors(out / f"checkpoints/step-{step:08d}", MODEL)
        read = read_tensors(outcome.weights)
        assert all(torch.equal(t, wanted[name]) for name, t in read.items())
        assert outcome.metrics["loss"] == (1.0 if step == 5 else 12.0)


def test_early_stopping_by_a_metric_that_should_grow(tmp_path):
    scores = {2: 1.0, 4: 3.0, 6: 2.0, 8: 2.5, 10: 9.0}
    outcome = train(
        tmp_path,
        evaluate=lambda model, step: {"bleu": scores[step]},
        metric="bleu",
        mode="max",
        patience=2,
        eval_every=2,
    )
    assert outcome.ending == "patience" and outcome.state.step == 8 and outcome.state.best.step == 4
    again = train(tmp_path, evaluate=None, metric="bleu", mode="max", patience=2, eval_every=2, resume=True)
    assert again.state.step == 8


def test_a_metric_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"training.metric is 'bleu', but what is measured is loss; give one of these"):
        train(tmp_path, metric="bleu")


def test_an_evaluation_that_fails_loses_no_step(tmp_path):
    def fails(model, step):
        raise RuntimeError("judged nothing")

    with pytest.raises(RuntimeError, match="judged nothing"):
        train(tmp_path / "a", evaluate=fails, save_every=100)
    assert train(tmp_path / "a", resume=True).state.step == 12
    with pytest.raises(ValueError, match=r"training\.metric"):
        train(tmp_path / "b", metric="bleu", save_every=100)
    assert step_of(Checkpoints(tmp_path / "b/checkpoints").newest()) == 5


def test_data_that_fail_lose_no_step(tmp_path):
    def fails(position):
        for one in open_stream(position):
            if one.position["next"] == 16:
                raise OSError("the disk with the data is gone")
            yield one

    wanted = train(tmp_path / "whole").weights.read_bytes()
    with pytest.raises(OSError, match="is gone"):
        train(tmp_path / "run", stream=fails, save_every=100)
    assert step_of(Checkpoints(tmp_path / "run/checkpoints").newest()) == 7
    assert train(tmp_path / "run", Tiny(seed=3), resume=True).weights.read_bytes() == wanted


def test_what_begins_is_called_only_when_the_settings_fit(tmp_path):
    called = []
    with pytest.raises(ValueError, match="nowhere"):
        train(tmp_path, optimizer={"kind": "adamw", "freeze": ["nowhere"]}, begin=lambda: called.append(1))
    assert called == []
    train(tmp_path, begin=lambda: called.append(2))
    with pytest.raises(ValueError, match="can't continue"):
        train(tmp_path, optimizer="sgd", resume=True, begin=lambda: called.append(3))
    assert called == [2]


def test_a_time_limit(tmp_path):
    outcome = train(tmp_path, max_steps=None, max_time=0.3, evaluate=None, schedule={"kind": "cosine", "unit": "time"})
    assert outcome.ending == "max_time" and 0.3 <= outcome.state.elapsed < 5.0
    rates = [line["lr"] for line in lines(tmp_path, "train")]
    assert rates == sorted(rates, reverse=True) and rates[0] > 2 * rates[-1]
    assert train(tmp_path, max_steps=None, max_time=0.3, evaluate=None, resume=True).state.step == outcome.state.step


def test_data_that_ends_and_data_that_never_begins(tmp_path):
    def five(position):
        return iter([batch(i) for i in range(5)])

    outcome = train(tmp_path / "a", stream=five)
    assert outcome.ending == "data" and outcome.state.step == 3 and outcome.state.position == {"next": 5}
    with pytest.raises(ValueError, match="the training data gave no batch"):
        train(tmp_path / "b", stream=lambda position: iter([]))


def test_the_stream_is_closed(tmp_path):
    closed = []

    def stream(position):
        try:
            yield from open_stream(position)
        finally:
            closed.append(True)

    train(tmp_path, stream=stream)
    assert closed == [True]


def test_a_folder_with_a_run_is_not_overwritten(tmp_path):
    train(tmp_path)
    with pytest.raises(ValueError, match="already holds a run with step-00000012; resume it"):
        train(tmp_path)


# -- steps that make no update ----------------------------------------------------------------------------------


class Poisoned(Tiny):
    """NaN in the loss, or infinity in a gradient, wherever a batch holds the token 12 first."""

    def __init__(self, where: str) -> None:
        super().__init__(dropout=0.0)
        self.where = where

    def forward(self, ids, labels, **rest):
        sums = super().forward(ids, labels, **rest)
        if ids[0, 0] != 12:
            return sums
        if self.where == "loss":
            return sums._replace(loss=sums.loss * math.nan)
        return sums._replace(
            loss=sums.loss + (self.layer.bias.sum() * 1e38 * 1e38 * 0 + torch.sqrt(self.layer.bias.sum() * 0))
        )


def poisoned_stream(bad: set[int]):
    def opened(position):
        for i in itertools.count(position["next"] if position else 0):
            one = batch(i)
            ids = one.inputs["ids"].clone()
            ids[0, 0] = 12 if i in bad else 1
            yield Batch({"ids": ids}, one.labels, one.counts, one.tokens, one.slots, one.position)

    return opened


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_bad_step_makes_no_update_and_is_told(tmp_path, where, capsys):
    outcome = train(tmp_path, Poisoned(where), poisoned_stream({3, 8}), log_every=1)
    bad = [line for line in lines(tmp_path, "event") if line["event"] == "bad step"]
    assert [(line["step"], line["position"], line["batches"]) for line in bad] == [
        (2, {"next": 2}, 2),
        (5, {"next": 8}, 2),
    ]
    assert not math.isfinite(bad[0]["loss"]) or not math.isfinite(bad[0]["grad_norm"])
    told = {line["step"]: line for line in lines(tmp_path, "train")}
    assert math.isnan(told[2]["loss"] + told[2]["grad_norm"]) and math.isfinite(told[3]["loss"] + told[3]["grad_norm"])
    assert outcome.state.guard.bad == 2 and "2 steps with a NaN" in str(outcome)
    assert "step 2 made no update" in capsys.readouterr().err
    assert all(t.isfinite().all() for t in read_tensors(outcome.weights).values())


def test_divergence_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    with pytest.raises(Diverged, match=r"diverged.* in 3 steps in a row \(steps 6 to 8.*step-00000005") as caught:
        train(tmp_path, Poisoned("loss"), poisoned_stream(set(range(10, 100))), max_bad_steps=3, save_every=1)
    assert caught.value.state.guard.bad == 3
    newest = Checkpoints(tmp_path / "checkpoints").newest()
    assert newest == caught.value.checkpoint and step_of(newest) == 5
    assert lines(tmp_path, "event")[-1]["reason"] == "bad steps"


def test_weights_that_are_no_numbers_are_never_saved(tmp_path):
    class Explodes(Tiny):
        def forward(self, ids, labels, **rest):
            sums = super().forward(ids, labels, **rest)
            return sums._replace(loss=sums.loss * 1e4)

    optimizer = {"kind": "sgd", "lr": 1e38, "momentum": 0.0}
    with pytest.raises(Diverged, match="no checkpoint was saved before"):
        train(tmp_path, Explodes(), optimizer=optimizer, save_every=1, clip_norm=None, max_bad_steps=2, evaluate=None)
    assert "not saved" in [line["event"] for line in lines(tmp_path, "event")]


@pytest.mark.parametrize("evaluator", [None, evaluate], ids=["unmeasured", "measured"])
def test_weights_that_are_no_numbers_are_never_delivered(tmp_path, evaluator):
    """Though the run ends before `max_bad_steps`."""

    class Explodes(Tiny):
        def forward(self, ids, labels, **rest):
            sums = super().forward(ids, labels, **rest)
            return sums._replace(loss=sums.loss * 1e4)

    optimizer = {"kind": "sgd", "lr": 1e38, "momentum": 0.0}
    with pytest.raises(Diverged, match="no checkpoint was saved before"):
        train(tmp_path, Explodes(), optimizer=optimizer, max_steps=3, clip_norm=None, evaluate=evaluator)
    assert not (tmp_path / MODEL).exists()


def test_a_run_without_a_single_update_delivers_nothing(tmp_path):
    with pytest.raises(Diverged, match=r"in 3 steps in a row \(steps 1 to 3"):
        train(tmp_path, Poisoned("loss"), poisoned_stream(set(range(100))), max_steps=3)
    assert not (tmp_path / MODEL).exists()


def test_all_labels_ignored_is_counted_and_stops_at_last(tmp_path):
    def ignored(position):
        for one in open_stream(position):
            empty = one.position["next"] in (3, 4) or one.position["next"] > 10
            labels = torch.full_like(one.labels, IGNORE) if empty else one.labels
            yield Batch(one.inputs, labels, {"loss": 0 if empty else one.counts["loss"]}, one.tokens, 0, one.position)

    outcome = train(tmp_path / "a", stream=ignored, max_steps=5)
    assert outcome.state.guard.empty == 1 and outcome.state.step == 5 and math.isfinite(outcome.metrics["loss"])
    empty = [line for line in lines(tmp_path / "a", "event") if line["event"] == "empty step"]
    assert [(line["step"], line["position"]) for line in empty] == [(2, {"next": 2})]
    with pytest.raises(ValueError, match=r"no label counted in 4 steps in a row \(steps 6 to 9\): all are −100"):
        train(tmp_path / "b", stream=ignored, max_bad_steps=4)


# -- interruption -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("heeds_hangup")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_finishes_the_step_and_saves(tmp_path, number):
    def stream(position):
        for one in open_stream(position):
            if one.position["next"] == 10:
                os.kill(os.getpid(), number)
            yield one

    outcome = train(tmp_path, stream=stream)
    assert outcome.interrupted and outcome.state.step == 5 and step_of(outcome.checkpoint) == 5
    assert load_state(outcome.checkpoint)["run"]["position"] == {"next": 10}
    assert lines(tmp_path, "event")[-1]["event"] == "interrupted"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert train(tmp_path, resume=True).ending == "max_steps"


def test_compile_is_a_switch(tmp_path, monkeypatch):
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda model: compiled.append(model) or model)
    train(tmp_path / "a")
    assert compiled == []
    train(tmp_path / "b", model := Tiny(), compile=True)
    assert compiled == [model]


@pytest.mark.slow
def test_compiled_trains_as_eager_does(tmp_path):
    losses = [train(tmp_path / str(c), Tiny(dropout=0.0), compile=c).metrics["loss"] for c in (False, True)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_metrics_are_valid_json_lines(tmp_path):
    train(tmp_path)
    for text in (tmp_path / "metrics.jsonl").read_text().splitlines():
        json.loads(text)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_on_a_gpu(tmp_path, precision):
    stream = poisoned_stream({3, 8})
    outcome = train(tmp_path, Poisoned("loss").cuda(), stream, precision=precision, evaluate=None, log_every=4)
    assert outcome.state.guard.bad == 2 and outcome.state.step == 12
    with pytest.raises(Diverged):
        train(
            tmp_path / "b", Poisoned("loss").cuda(), poisoned_stream(set(range(4, 99))), evaluate=None, max_bad_steps=3
        )


def test_a_buffer_with_an_infinity_is_no_divergence(tmp_path):
    model = Tiny()
    model.register_buffer("mask", torch.full((2,), -torch.inf))
    done = train(tmp_path, model)
    assert done.state.step == 12 and done.checkpoint is not None
    assert read_tensors(done.weights)["mask"].isneginf().all()
