"""Tables of names: placeholders, what is written, what can be read, and what is refused before anything is allocated."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from qkv.io.hub.names import Names, Row
from qkv.io.hub.transforms import Joined, Stacked


class Small(nn.Module):
    """Two blocks with queries and keys, experts, and a head tied to the table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(5, 3))
        self.blocks = nn.ModuleList(nn.ModuleDict({"q": nn.Linear(3, 2), "k": nn.Linear(3, 1)}) for _ in range(2))
        self.experts = nn.Parameter(torch.randn(2, 3, 3))
        self.head = self.table


TABLE = (
    Row("emb.weight", "table"),
    Row("h.{i}.qk.*", "blocks.{i}.[q,k].*", Joined()),
    Row("h.{i}.query.*", "blocks.{i}.q.*"),
    Row("h.{i}.key.*", "blocks.{i}.k.*"),
    Row("moe.{e}.w", "experts", Stacked()),
    Row("lm_head.weight", "head"),
    Row("h.{i}.mask", ""),
)


@pytest.fixture
def model() -> Small:
    return Small()


def test_every_tensor_there_and_back(model: Small) -> None:
    names = Names.of(TABLE, model)
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    theirs = names.to_theirs(state)
    assert set(theirs) == {
        *("emb.weight", "h.0.qk.weight", "h.0.qk.bias", "h.1.qk.weight", "h.1.qk.bias", "moe.0.w", "moe.1.w")
    }
    assert theirs["h.1.qk.weight"].shape == (3, 3)
    back = names.to_ours(theirs)
    assert set(back) == set(state) - {"head"}, "what is tied once, by its first name"
    assert all(torch.equal(back[name], state[name]) for name in back)


def test_other_spellings_and_meaningless_tensors_are_read(model: Small) -> None:
    names = Names.of(TABLE, model)
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    theirs = names.to_theirs(state)
    for i in range(2):
        for part in ("weight", "bias"):
            fused = theirs.pop(f"h.{i}.qk.{part}")
            theirs[f"h.{i}.query.{part}"], theirs[f"h.{i}.key.{part}"] = fused[:2], fused[2:]
    theirs["lm_head.weight"] = theirs.pop("emb.weight")
    theirs["h.0.mask"] = torch.ones(9)
    back = names.to_ours(theirs)
    assert all(torch.equal(back[name], state[name]) for name in back) and len(back) == len(state) - 1


def test_a_second_copy_of_what_is_tied_is_set_apart(model: Small) -> None:
    names = Names.of(TABLE, model)
    shapes = {name: tuple(t.shape) for name, t in names.to_theirs(model.state_dict()).items()}
    reading = names.read({**shapes, "lm_head.weight": (5, 3)})
    assert [entry.theirs for entry in reading.again] == [("lm_head.weight",)]


@pytest.mark.parametrize(
    "change, said",
    [
        ({"h.1.qk.bias": None}, "the file lacks 'h.1.qk.bias', which this model has"),
        ({"h.9.qk.bias": (3,)}, "holds 'h.9.qk.bias', which this model lacks; did you mean"),
        ({"h.0.qk.weight": (3, 4)}, r"h.0.qk.weight is of shape \(3, 4\), and the model's of \(3, 3\)"),
        ({"moe.1.w": None}, "lacks 'moe.1.w'"),
    ],
)
def test_what_does_not_fit_is_named(model: Small, change: dict, said: str) -> None:
    names = Names.of(TABLE, model)
    shapes = {name: tuple(t.shape) for name, t in names.to_theirs(model.state_dict()).items()} | change
    with pytest.raises(ValueError, match=said):
        names.read({name: shape for name, shape in shapes.items() if shape is not None})


def test_a_table_without_a_row_for_a_tensor_is_refused(model: Small) -> None:
    with pytest.raises(ValueError, match="no row for 'experts'"):
        Names.of([row for row in TABLE if row.ours != "experts"], model)
