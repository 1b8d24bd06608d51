import torch
from train_stand_in import Tiny, train

from qkv.training.checkpoints.checkpoint import AVERAGE, MODEL, load_tensors
from qkv.training.checkpoints.weights import model_tensors, read_tensors
from qkv.training.logging.metrics_file import read_metrics
from qkv.training.weight_averaging import Average, AveragedModel, ExponentialMovingAverage, NoAverage, mean


def test_mean_is_taken_in_float64_and_leaves_integers_alone():
    sets = [{"w": torch.tensor([x]), "h": torch.tensor([x]).half(), "n": torch.tensor(int(x))} for x in (1.0, 2.0, 6.0)]
    got = mean(iter(sets))
    assert got["w"].item() == 3.0 and got["w"].dtype == torch.float32
    assert got["h"].dtype == torch.float16 and got["n"].item() == 6


def test_running_average_by_hand():
    model = Tiny()
    running = AveragedModel(ExponentialMovingAverage(decay=0.5), model)
    wanted = model.layer.weight.detach().clone()
    for step in (1, 20):
        with torch.no_grad():
            model.layer.weight.add_(1.0)
        running.update(step)
        decay = min(0.5, (1 + step) / (10 + step))
        wanted = decay * wanted + (1 - decay) * model.layer.weight.detach()
    torch.testing.assert_close(running.tensors["layer.weight"], wanted)
    own = model.layer.weight.detach().clone()
    with running.in_place():
        torch.testing.assert_close(model.layer.weight.detach(), wanted)
        assert model.output.weight is model.embedding.weight
    assert torch.equal(model.layer.weight, own)


def test_a_run_delivers_and_evaluates_the_mean_of_its_last_checkpoints(tmp_path):
    model = Tiny()
    outcome = train(tmp_path, model, average=3, keep=3, eval_every=None)
    paths = [tmp_path / f"checkpoints/step-{step:08d}" for step in (4, 8, 12)]
    wanted = mean(load_tensors(path, MODEL) for path in paths)
    delivered = read_tensors(outcome.weights)
    assert outcome.source == "the mean of 3 checkpoints"
    assert all(torch.equal(delivered[name], t) for name, t in wanted.items())
    assert all(torch.equal(t, wanted[name]) for name, t in model_tensors(model).items())
    final = [line for line in read_metrics(tmp_path / "metrics.jsonl") if line["type"] == "final"]
    assert [line["loss"] for line in final] == [outcome.metrics["loss"]]


def test_a_run_delivers_its_running_average_and_evaluates_that(tmp_path):
    model = Tiny()
    seen = []

    def evaluate(model, step):
        seen.append({name: t.clone() for name, t in model_tensors(model).items()})
        return {"loss": float(-step)}

    outcome = train(tmp_path, model, average="running", evaluate=evaluate)
    delivered = read_tensors(outcome.weights)
    assert outcome.source == "the running average of step 12"
    assert all(torch.equal(delivered[name], t) for name, t in seen[-1].items())
    assert not torch.equal(delivered["layer.weight"], load_tensors(outcome.checkpoint, MODEL)["layer.weight"])
    assert torch.equal(delivered["layer.weight"], load_tensors(outcome.checkpoint, AVERAGE)["layer.weight"])


def test_averages_are_registered_by_kind():
    assert Average.from_dict({"kind": "none"}) == NoAverage()
    assert Average.kinds.keys() >= {"none", "checkpoints", "running"}
