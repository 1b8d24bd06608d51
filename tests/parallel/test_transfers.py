"""Every place where a step of several ranks waits for its device, found on a device from which nothing can be read.

PyTorch's fake process group stands for the other ranks: `python tests/parallel/test_transfers.py RANK` prints the places.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LAYOUTS: dict[str, dict[str, Any]] = {
    "data": {},
    "zero 1": {"shard": 2, "zero": 1},
    "zero 2": {"shard": 2, "zero": 2},
    "tensor": {"tensor": 2},
    "all-to-all": {"context": 2, "context_attention": "all-to-all"},
    "all-gather": {"context": 2, "context_attention": "all-gather"},
    "expert": {"expert": 2},
    "pipeline": {"pipeline": 2},
}
LABELS, OF_VOCABULARY = "losses.py:_linear_cross_entropy: nonzero", "vocabulary.py:forward: nonzero"
ROWS = "experts.py:_experts: tolist"  # how many rows travel to each rank, which the host has to know
ALLOWED = {"tensor": {OF_VOCABULARY}, "expert": {LABELS, ROWS}}


def waits(rank: int) -> dict[str, list[str]]:
    """The places by layout, in the second of two steps."""
    import torch
    import torch.distributed as dist
    import torch.distributed._tools.fake_collectives
    from same_steps import _prepared
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from transfers import transfers

    from qkv.data.loader.stream import stream
    from qkv.models.build import build
    from qkv.parallel.scale import Scale
    from qkv.parallel.team import Team
    from qkv.parallel.world import World
    from qkv.training.step import Stepper

    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
    ranks, found = World(), {}
    for name, scale in LAYOUTS.items():
        family = "moe" if name == "expert" else "decoder"
        recipe, tokenizer, spec = _prepared(family, ("training.clip_norm=1.0", "training.accumulate=2"))
        value = Scale.from_dict(scale)
        team = Team(ranks, torch.device("meta"), value, value.sizes(2))
        with transfers() as noted:
            model = build(spec, seed=1).train().to("meta")
            stepper = Stepper(model, recipe.objective, recipe.training, ranks, team.distribute(model))
            batching = recipe.batching.replace(pool=64, workers=0)
            with stream(recipe.data, tokenizer, batching, seq2seq=family == "moe", seed=3, shard=team.shard) as batches:
                some = [next(batches), next(batches)]
            if name != "pipeline" or rank == 0:  # nobody says what the last stage receives
                stepper.take(some, 0.01)
                noted.places.clear()
                stepper.take(some, 0.01)
        found[name] = sorted(set(noted.places)) if name != "pipeline" or rank == 0 else []
    return found


@pytest.mark.parametrize("rank", [0, 1])
def test_steps_wait_for_the_device_only_for_labels_and_for_rows_of_experts(rank: int) -> None:
    done = subprocess.run([sys.executable, __file__, str(rank)], capture_output=True, text=True, timeout=300)
    assert done.stdout, done.stderr
    for name, places in json.loads(done.stdout.splitlines()[-1]).items():
        assert set(places) <= ALLOWED.get(name, {LABELS}), name


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
    print(json.dumps(waits(int(sys.argv[1]))))
