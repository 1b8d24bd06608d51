import threading

import pytest
import torch
from train_stand_in import Tiny, batch

import qkv
from qkv.core.batch import IGNORE, Batch, Term
from qkv.core.layout import Layout
from qkv.core.ranks import ALONE, Alone, BatchSplit, splitting
from qkv.nn.layers.moe import MixtureOfExperts
from qkv.training.checkpoints.weights import model_tensors
from qkv.training.objective import NextToken
from qkv.training.settings import Training
from qkv.training.step import Stepper

TRAINING = Training.from_dict({"optimizer": "sgd", "clip_norm": None})


def whole(parts: list[Batch]) -> Batch:
    ids, labels = torch.cat([p.inputs["ids"] for p in parts]), torch.cat([p.labels for p in parts])
    return Batch({"ids": ids}, labels, {"loss": sum(p.counts["loss"] for p in parts)}, sum(p.tokens for p in parts))


def stepper(ranks=ALONE) -> Stepper:
    return Stepper(Tiny(dropout=0.0), NextToken(label_smoothing=0.1), TRAINING, ranks)


def close(a: torch.nn.Module, b: torch.nn.Module) -> None:
    theirs = model_tensors(b)
    for name, tensor in model_tensors(a).items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-5, atol=1e-6)


def ignored(one: Batch) -> Batch:
    return Batch(one.inputs, torch.full_like(one.labels, IGNORE), {"loss": 0}, one.tokens)


def test_accumulated_equals_whole_whatever_the_counts():
    parts = [batch(0, rows=1), batch(1, rows=5), ignored(batch(7)), batch(2, rows=2)]
    assert len({p.counts["loss"] for p in parts}) > 2
    several, one = stepper(), stepper()
    taken, wanted = several.take(parts, lr=0.5), one.take([whole(parts)], lr=0.5)
    assert (taken.count, taken.tokens) == (wanted.count, wanted.tokens)
    torch.testing.assert_close(taken.loss, wanted.loss)
    torch.testing.assert_close(taken.grad_norm, wanted.grad_norm)
    torch.testing.assert_close(taken.values["loss"], wanted.values["loss"])
    close(several.model, one.model)


def test_all_labels_ignored_is_no_step_and_no_nan():
    one = stepper()
    before = {name: t.clone() for name, t in model_tensors(one.model).items()}
    taken = one.take([ignored(batch(0)), ignored(batch(1))], lr=0.5)
    assert taken.count == 0 and taken.tokens == 48
    assert all(torch.equal(t, before[name]) for name, t in model_tensors(one.model).items())


@pytest.mark.parametrize("recompute", ["none", "blocks"])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_what_is_frozen_stays_and_counts_in_no_norm(recompute, optimizer):
    sizes = {"d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 32, "vocab_size": 20}
    model = qkv.build(qkv.preset("gpt2", max_positions=8, dropout=0.0, **sizes), seed=0)
    frozen = ("decoder.embedding.*", "decoder.blocks.0.*")
    training = Training.from_dict({"optimizer": {"kind": optimizer, "freeze": frozen}, "recompute": recompute})
    one = Stepper(model, NextToken(), training, ALONE)
    before = {name: t.clone() for name, t in model_tensors(model).items()}
    ids = torch.arange(16).view(2, 8)
    batch = Batch({"ids": ids, "layout": Layout.full(8)}, ids + 1, {"loss": 16}, 16)
    loss = NextToken()(model, batch)["loss"].sum / 16
    moving = [p for p in model.parameters() if p.requires_grad]
    wanted = torch.stack([g.norm() for g in torch.autograd.grad(loss, moving)]).norm()
    torch.testing.assert_close(one.take([batch], 0.1).grad_norm, wanted)
    changed = {name for name, t in model_tensors(model).items() if not torch.equal(t, before[name])}
    assert changed == {name for name, p in model.named_parameters() if p.requires_grad}
    assert not any(name.startswith(("decoder.embedding", "decoder.blocks.0.")) for name in changed)


def test_frozen_weights_need_no_fp32_masters():
    model = Tiny(dropout=0.0)
    model.norm.to(torch.bfloat16)
    bf16 = {"precision": "bf16", "optimizer": {"kind": "adamw", "freeze": "norm.*"}}
    Stepper(model, NextToken(), Training.from_dict(bf16), ALONE)
    with pytest.raises(ValueError, match=r"norm\.weight is bfloat16"):
        Stepper(model.requires_grad_(True), NextToken(), Training.from_dict({"precision": "bf16"}), ALONE)


class Together(Alone):
    """Ranks as threads of one process."""

    size = 2

    def __init__(self, rank: int, shared: list, meet: threading.Barrier) -> None:
        self.rank, self.shared, self.meet = rank, shared, meet

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        self.shared[self.rank] = value.detach().clone()
        self.meet.wait()
        total = self.shared[0] + self.shared[1]
        self.meet.wait()
        return total

    def barrier(self) -> None:
        self.meet.wait()


@pytest.mark.parametrize("second", [batch(1, rows=5), ignored(batch(1))], ids=["unequal", "all ignored"])
def test_two_ranks_equal_one_process(second):
    shared, meet = [None, None], threading.Barrier(2, timeout=20)
    ranks = [stepper(Together(rank, shared, meet)) for rank in range(2)]
    parts, took = [batch(0, rows=1), second], {}

    def go(rank: int) -> None:
        took[rank] = ranks[rank].take([parts[rank]], lr=0.5)

    threads = [threading.Thread(target=go, args=(rank,)) for rank in range(2)]
    with splitting(
        BatchSplit()
    ):  # the split is the process's: threads that leave theirs in turns would leave one behind
        [t.start() for t in threads]
        [t.join() for t in threads]
    one = stepper()
    wanted = one.take([whole(parts)], lr=0.5)
    for rank in range(2):
        assert took[rank].count == wanted.count and took[rank].tokens == wanted.tokens
        torch.testing.assert_close(took[rank].loss, wanted.loss)
        torch.testing.assert_close(took[rank].grad_norm, wanted.grad_norm)
        close(ranks[rank].model, one.model)


class Balanced(NextToken, kind="balanced-in-step-test"):
    """A term over each batch as a whole, which the batch's number says, and a statistic."""

    def __call__(self, model, batch):
        n, value = batch.counts["loss"], torch.tensor(float(batch.position["next"]))
        extra = {"whole": Term(3 * value * n, n, weight=0.5, value=value * n, over="loss")}
        return {**super().__call__(model, batch), **extra, "seen": Term(value * n, n, weight=0.0, over="loss")}


def test_a_term_over_a_batch_weighs_as_much_as_the_labels_beside_it():
    parts = [batch(0, rows=1), batch(1, rows=5), ignored(batch(7)), batch(2, rows=2)]
    one = Stepper(Tiny(dropout=0.0), Balanced(), TRAINING, ALONE)
    taken, plain = one.take(parts, lr=0.5), Stepper(Tiny(dropout=0.0), NextToken(), TRAINING, ALONE).take(parts, lr=0.5)
    n = [p.counts["loss"] for p in parts]
    mean = (1 * n[0] + 2 * n[1] + 3 * n[3]) / sum(n)
    assert list(taken.values) == ["loss", "whole", "seen"]
    assert taken.values["whole"].item() == taken.values["seen"].item() == pytest.approx(mean)
    assert taken.loss.item() == pytest.approx(plain.loss.item() + 0.5 * 3 * mean)


def test_the_bias_of_experts_moves_once_a_step():
    spec = qkv.preset("gpt2", vocab_size=13, d_model=16, n_layers=1, n_heads=2, max_positions=8)
    model = qkv.build(
        spec.replace({"decoder.blocks.0.feedforward": MixtureOfExperts(n_experts=4, d_ff=8, bias_rate=0.5)})
    )
    one, router = Stepper(model.train(), NextToken(), TRAINING, ALONE), model.decoder.blocks[0].feedforward.router
    one.take([batch(0), batch(1)], lr=0.0)
    assert router.bias.any() and set(router.bias.abs().tolist()) <= {0.0, 0.5}
    one.take([batch(0), batch(1)], lr=0.0)
    assert set(router.bias.abs().tolist()) <= {0.0, 0.5, 1.0}
