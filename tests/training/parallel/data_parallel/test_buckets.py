"""Buckets of gradients: which parameters share one, what is sent of them, and when."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from qkv.training.parallel.data_parallel import buckets as module
from qkv.training.parallel.data_parallel.buckets import ALIGNED, Bucket, Reducer, buckets_of


def parameters(*sizes: int) -> list[nn.Parameter]:
    return [nn.Parameter(torch.full((size,), float(i))) for i, size in enumerate(sizes)]


def test_buckets_are_filled_from_the_last_parameter_by_owner_and_dtype(monkeypatch) -> None:
    monkeypatch.setattr(module, "BUCKET_BYTES", 40)  # ten numbers in fp32
    some = parameters(4, 4, 3, 4, 20)
    some[2] = nn.Parameter(some[2].detach().half())
    owners = {id(p): i % 2 for i, p in enumerate(some)}
    found = buckets_of(some, lambda p: (owners[id(p)], ("data",)))
    places = [[next(i for i, p in enumerate(some) if p is own) for own in bucket.parameters] for bucket in found]
    assert places == [[4], [3, 1], [2], [0]]  # 20 numbers fill a bucket alone; the half-precision one has its own
    assert [bucket.owner for bucket in found] == [0, 1, 0, 0]


def test_a_missing_gradient_is_zeros_and_marked() -> None:
    a, b = parameters(2, 3)
    bucket = Bucket(0, (), [a, b])
    b.grad = torch.tensor([1.0, 2.0, 3.0])
    (flat,) = bucket.flatten()
    assert flat.tolist() == [0, 0, 1, 2, 3, 0, 1] and b.grad is None
    ((one, gradient),) = bucket.gradients([flat])
    assert one is b and gradient.tolist() == [1, 2, 3]
    both = {id(p): g.tolist() for p, g in bucket.gradients([flat + torch.tensor([5.0, 5, 0, 0, 0, 1, 0])])}
    assert both == {id(a): [5, 5], id(b): [1, 2, 3]}  # another rank had a gradient for the first


def test_the_gradient_of_one_parameter_is_not_copied() -> None:
    (a,) = parameters(3)
    a.grad = torch.ones(3)
    sent, there = Bucket(0, (), [a]).flatten() if (kept := a.grad) is not None else ()
    assert sent.data_ptr() == kept.data_ptr() and there.tolist() == [1]


def test_joined_parameters_are_views_that_begin_at_multiples() -> None:
    a, b = parameters(3, ALIGNED + 1)
    bucket = Bucket(0, (), [a, b])
    flat = bucket.joined
    assert (
        len(flat) == 3 * ALIGNED and flat[0] == 0 and flat[ALIGNED : 2 * ALIGNED + 1].tolist() == [1.0] * (ALIGNED + 1)
    )
    flat.fill_(7)
    assert a.tolist() == [7.0] * 3 and bucket.joined is flat
    b.data = torch.full_like(b, 2.0)  # replaced, so joined again
    assert bucket.joined is not flat and bucket.joined[ALIGNED] == 2


def test_a_bucket_is_sent_as_soon_as_it_and_those_before_it_are_there() -> None:
    sent: list[str] = []
    some = parameters(1, 1, 1)
    names = dict(zip(map(id, some), "abc", strict=True))
    made = [Bucket(0, (), [p]) for p in reversed(some)]  # c, b, a

    def communicate(bucket: Bucket, flat: Tensor) -> None:
        if len(flat) and names[id(bucket.parameters[0])] not in sent:
            sent.append(names[id(bucket.parameters[0])])

    reducer = Reducer(made, communicate)
    (some[1] * 2).sum().backward()
    assert not sent, "a pass whose gradients stay"
    reducer.begin()
    (some[1] * 2).sum().backward()
    assert not sent, "b waits for c"
    (some[2] * 2).sum().backward()
    assert sent == ["c", "b"]
    reducer.finish()
    assert sent == ["c", "b", "a"]
