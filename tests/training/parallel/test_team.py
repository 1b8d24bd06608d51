"""A team of one rank: nothing is distributed, whatever started the process."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from qkv.core.ranks import ALONE
from qkv.runs.recipes.recipe import Recipe
from qkv.training.parallel.scale import Scale, Sizes
from qkv.training.parallel.team import Team, team
from qkv.training.strategy import Strategy


def test_a_mesh_of_one_rank_trains_by_the_code_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torchrun with --nproc-per-node 1 starts it: no process group, and the strategy without communication."""
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "nowhere"}.items():
        monkeypatch.setenv(name, value)
    with team(Scale.from_dict({"data": 1, "tensor": 1}), torch.device("cpu")) as members:
        strategy = members.distribute(nn.Linear(2, 2))
    assert members.ranks is ALONE and type(strategy) is Strategy
    assert not torch.distributed.is_initialized()


def test_axes_that_need_more_ranks_are_refused_with_the_option_that_starts_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    scale = Scale.from_dict({"tensor": 2, "shard": 2, "zero": 1})
    message = "scale.shard=2 scale.tensor=2 needs 4 ranks, and this is one process; start them with --nproc 4"
    with pytest.raises(ValueError, match=message), team(scale, torch.device("cpu")):
        pass
    assert scale.sizes(4).ranks == 4  # what the message advises, and the other:
    with team(Recipe.load("reverse", ["scale={shard: 2, zero: 1}", "scale={}"]).scale, torch.device("cpu")) as members:
        assert members.ranks is ALONE


class Two:
    """Two ranks, seen from one of them; the other's values are changed."""

    size = 2

    def __init__(self, rank: int, changed: dict[str, Any]) -> None:
        self.rank, self.changed = rank, changed

    def gather(self, value: dict[str, Any]) -> list[dict[str, Any]]:
        return [value, {**value, **self.changed}]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model": {"d_ff": 24, "n_heads": 2}}, "model.d_ff is None on rank 0 and 24 on rank 1"),
        ({"model": {"n_heads": 2, "bias": False}}, "model.bias is None on rank 0 and False on rank 1"),
        ({"PyTorch": "2.0.0"}, f"PyTorch is '{torch.__version__}' on rank 0 and '2.0.0' on rank 1"),
        ({"--resume": True}, "--resume is False on rank 0 and True on rank 1"),
        ({"--out": "runs/b"}, "--out is 'runs/a' on rank 0 and 'runs/b' on rank 1"),
    ],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_difference_between_ranks_is_named_by_rank_0(
    rank: int, changed: dict[str, Any], message: str
) -> None:
    members = Team(Two(rank, changed), torch.device("cpu"), Scale(), Sizes(data=2))  # type: ignore[arg-type]
    values = {"model": {"n_heads": 2}, "--resume": False, "--out": "runs/a"}
    with pytest.raises(ValueError, match="the ranks don't agree") as raised:
        members.compare(values)
    assert message in str(raised.value) and len(str(raised.value)) < 200
    assert getattr(raised.value, "said_by_rank_0", None) is (rank == 1)
    Team(Two(rank, {}), torch.device("cpu"), Scale(), Sizes(data=2)).compare(values)  # type: ignore[arg-type]
