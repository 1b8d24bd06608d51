import threading

import pytest
import torch
from train_stand_in import Tiny, batch

from qkv.core.batch import IGNORE, Batch
from qkv.core.ranks import ALONE
from qkv.train.objective import NextToken
from qkv.train.settings import Training
from qkv.train.step import Stepper
from qkv.train.weights import model_tensors

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


class Together:
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
    [t.start() for t in threads]
    [t.join() for t in threads]
    one = stepper()
    wanted = one.take([whole(parts)], lr=0.5)
    for rank in range(2):
        assert took[rank].count == wanted.count and took[rank].tokens == wanted.tokens
        torch.testing.assert_close(took[rank].loss, wanted.loss)
        torch.testing.assert_close(took[rank].grad_norm, wanted.grad_norm)
        close(ranks[rank].model, one.model)
