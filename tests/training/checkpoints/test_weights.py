import pickle

import pytest
import torch
from safetensors.torch import save_file
from train_stand_in import Tiny, batch

from qkv.training.checkpoints.weights import (
    all_finite,
    load_model,
    load_optimizer,
    model_tensors,
    optimizer_tensors,
    read_tensors,
    replace_tensors,
    write_tensors,
)
from qkv.training.objective import NextToken
from qkv.training.optimizers import SGD, Adafactor, AdamW, AdamW8bit, Optimizer


def test_tied_weights_are_written_once_and_stay_tied(tmp_path):
    model = Tiny(seed=1)
    write_tensors(tmp_path / "m.safetensors", model_tensors(model))
    read = read_tensors(tmp_path / "m.safetensors")
    assert "output.weight" not in read and "counter" in read
    other = Tiny(seed=2)
    load_model(other, read)
    assert other.output.weight is other.embedding.weight
    assert all(torch.equal(t, read[name]) for name, t in model_tensors(other).items())


def test_what_does_not_fit_is_named_and_changes_nothing():
    model = Tiny()
    good = {name: t.clone() for name, t in model_tensors(model).items()}
    changed = {name: t + 1 for name, t in good.items()}
    wrong = {
        "lack 'layer.bias'": {n: t for n, t in changed.items() if n != "layer.bias"},
        r"hold 'layer.bia', which.*did you mean 'layer.bias'": {**changed, "layer.bia": changed["layer.bias"]},
        r"layer.bias of shape \(3,\); this model's is \(8,\)": {**changed, "layer.bias": torch.zeros(3)},
    }
    for sentence, tensors in wrong.items():
        with pytest.raises(ValueError, match=sentence):
            load_model(model, tensors)
    assert all(torch.equal(t, good[name]) for name, t in model_tensors(model).items())


def test_a_pickle_is_refused_and_never_executed(tmp_path):
    class Harm:
        def __reduce__(self):
            return (open, (str(tmp_path / "executed"), "w"))

    path = tmp_path / "model.safetensors"
    path.write_bytes(pickle.dumps(Harm()))
    with pytest.raises(ValueError, match=r"model.safetensors is not a sound safetensors file"):
        read_tensors(path)
    torch.save({"w": torch.ones(2)}, path)
    with pytest.raises(ValueError, match="not a sound safetensors file"):
        read_tensors(path)
    assert not (tmp_path / "executed").exists()


def test_the_disk_refusing_is_an_oserror(tmp_path):
    with pytest.raises(OSError, match=r"m.safetensors could not be written"):
        write_tensors(tmp_path / "missing/m.safetensors", {"w": torch.ones(2)})


def test_replacing_keeps_the_name(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"w": torch.zeros(2)}, path)
    replace_tensors(path, {"w": torch.ones(2)})
    assert read_tensors(path)["w"].tolist() == [1.0, 1.0] and len(list(tmp_path.iterdir())) == 1


class Nadam(Optimizer, kind="nadam-test"):
    """From outside: PyTorch makes its state at the first step."""

    def make(self, groups, model):
        return torch.optim.NAdam(groups, lr=self.lr)


@pytest.mark.parametrize("spec", [AdamW(), SGD(), SGD(momentum=0.0), Nadam()], ids=str)
def test_an_optimizer_continues_with_its_own_state(spec):
    def steps(model: Tiny, optimizer: torch.optim.Optimizer, n: int) -> None:
        for _ in range(n):
            NextToken()(model, batch(0))["loss"].sum.backward()
            optimizer.step()
            optimizer.zero_grad()

    model, other = Tiny(dropout=0.0), Tiny(seed=9, dropout=0.0)
    optimizer, second = spec.build(model), spec.build(other)
    steps(model, optimizer, 3)
    load_model(other, model_tensors(model))
    load_optimizer(second, {name: t.clone() for name, t in optimizer_tensors(optimizer).items()})
    steps(model, optimizer, 2)
    steps(other, second, 2)
    assert all(torch.equal(t, model_tensors(other)[name]) for name, t in model_tensors(model).items())


@pytest.mark.parametrize("name", ["layer.weight/exp_avg", "nobody/exp_avg"])
@pytest.mark.parametrize("spec", [AdamW(), Nadam()], ids=str)
def test_another_models_optimizer_state_is_refused(name, spec):
    with pytest.raises(ValueError, match=rf"{name}' of shape \(5, 5\), which doesn't fit"):
        load_optimizer(spec.build(Tiny()), {name: torch.zeros(5, 5)})


@pytest.mark.parametrize(
    ("before", "now", "sentence"),
    [
        (
            SGD(),
            SGD(momentum=0.0),
            r"hold 'layer.weight/momentum_buffer' of shape \(8, 8\).*keeps nothing of 'layer.weight'",
        ),
        (SGD(momentum=0.0), SGD(), "lack 'layer.weight/momentum_buffer', .* and 2 more, which this optimizer keeps"),
        (Adafactor(), AdamW(), r"hold 'layer.weight/row' .* keeps step \(\), exp_avg \(8, 8\), exp_avg_sq \(8, 8\)"),
        (
            AdamW(),
            AdamW(freeze="layer.*"),
            "keeps nothing of 'layer.weight', which is not in this model or does not train",
        ),
        (
            AdamW8bit(min_size=0, block=16),
            AdamW8bit(min_size=0, block=32),
            r"exp_avg_max' of shape \(4,\).*exp_avg_max \(2,\)",
        ),
        (AdamW8bit(), AdamW8bit(min_size=0), r"layer.weight/exp_avg' of shape \(8, 8\).*exp_avg \(64,\)"),
    ],
    ids=str,
)
def test_a_state_that_this_optimizer_does_not_keep_is_refused_and_changes_nothing(before, now, sentence):
    optimizer = now.build(Tiny())
    start = {name: t.clone() for name, t in optimizer_tensors(optimizer).items()}
    saved = {name: t + 1 for name, t in optimizer_tensors(before.build(Tiny())).items()}
    with pytest.raises(ValueError, match=sentence):
        load_optimizer(optimizer, saved)
    assert all(torch.equal(t, start[name]) for name, t in optimizer_tensors(optimizer).items())


def test_all_finite():
    assert all_finite([torch.ones(2), torch.tensor([1])]) and all_finite([])
    assert not all_finite([torch.ones(2), torch.tensor([1.0, float("nan")])])


def test_the_same_weights_make_the_same_file(tmp_path):
    tensors = {"a": torch.ones(3), 'ä"\\ \u0001': torch.zeros(2)}
    written = set()
    for n in range(20):
        replace_tensors(tmp_path / str(n), tensors)
        written.add((tmp_path / str(n)).read_bytes())
    assert len(written) == 1
    read = read_tensors(tmp_path / "0")
    assert read.keys() == tensors.keys() and all(torch.equal(read[name], tensors[name]) for name in tensors)
