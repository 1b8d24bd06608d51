"""A team of one rank: nothing is distributed, whatever started the process."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from qkv.core.ranks import ALONE
from qkv.parallel.scale import Scale
from qkv.parallel.team import team
from qkv.training.strategy import Strategy


def test_a_mesh_of_one_rank_trains_by_the_code_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torchrun with --nproc-per-node 1 starts it: no process group, and the strategy without communication."""
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "nowhere"}.items():
        monkeypatch.setenv(name, value)
    with team(Scale.from_dict({"data": 1, "tensor": 1}), torch.device("cpu")) as members:
        strategy = members.distribute(nn.Linear(2, 2))
    assert members.ranks is ALONE and type(strategy) is Strategy
    assert not torch.distributed.is_initialized()


def test_a_mesh_that_one_rank_is_too_few_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    fits = r"data × shard × tensor can be 1 × 1 × 1"
    with pytest.raises(ValueError, match=fits), team(Scale.from_dict({"tensor": 2}), torch.device("cpu")):
        pass
