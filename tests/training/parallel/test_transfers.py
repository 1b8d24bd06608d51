"""Every place where a step of several ranks waits for its device, found on a device from which nothing can be read.

PyTorch's fake process group stands for the other ranks. ZeRO 3 is PyTorch's FSDP2, which does not run on the meta device:
what it reads on two ranks of CPUs is compared with what replicas read there.
`python tests/training/parallel/test_transfers.py RANK LAYOUT ...` prints the places.
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
    "ring": {"context": 2, "context_attention": "ring"},
    "all-to-all": {"context": 2, "context_attention": "all-to-all"},
    "all-gather": {"context": 2, "context_attention": "all-gather"},
    "expert": {"expert": 2},
    "1f1b": {"pipeline": 2},
    "gpipe": {"pipeline": 2, "pipeline_schedule": "gpipe"},
    "zb-h1": {"pipeline": 2, "pipeline_schedule": "zb-h1"},
    "interleaved-1f1b": {"pipeline": 2, "pipeline_schedule": "interleaved-1f1b"},
}
LABELS, OF_VOCABULARY = "losses.py:_linear_cross_entropy: nonzero", "vocabulary.py:forward: nonzero"
ROWS = "experts.py:_experts: tolist"  # how many rows travel to each rank, which the host has to know
MEETS = "block_map.py:block_bounds: cpu"  # which ranks have tokens that attend to one another, once for each batch
ALLOWED = {"tensor": {OF_VOCABULARY}, "expert": {LABELS, ROWS}, "ring": {LABELS, MEETS}}


def waits(rank: int, layouts: list[str]) -> dict[str, list[str]]:
    """The places by layout, in the second of two steps."""
    import torch
    import torch.distributed as dist
    import torch.distributed._tools.fake_collectives
    from same_steps import _prepared
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from transfers import transfers

    from qkv.data.loader.stream import stream
    from qkv.nn.models.build import build
    from qkv.training.parallel.model_parallel.pipeline import MessageContents
    from qkv.training.parallel.scale import Scale
    from qkv.training.parallel.team import Team
    from qkv.training.parallel.world import World
    from qkv.training.step import Stepper

    class Told(dict[Any, MessageContents]):
        """What the other stage tells of its hidden states in the first step."""

        def __contains__(self, key: object) -> bool:
            return True

        def __missing__(self, key: Any) -> MessageContents:
            rows, tokens = next(shape for shape in key[1] if isinstance(shape, tuple))
            return MessageContents(1, (), (((rows, tokens, spec.d_model), torch.get_default_dtype(), True),))

    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
    dist.batch_isend_irecv = lambda operations: []  # the fake group has none on the meta device
    ranks, found = World(), {}
    for name in layouts:
        family = "moe" if name == "expert" else "decoder"
        recipe, tokenizer, spec = _prepared(
            family, ("training.clip_norm=1.0", "training.accumulate=2", "model.n_layers=4")
        )
        value = Scale.from_dict(LAYOUTS[name])
        team = Team(ranks, torch.device("meta"), value, value.sizes(2))
        with transfers() as noted:
            model = build(spec, seed=1).train().to("meta")
            stepper = Stepper(model, recipe.objective, recipe.training, ranks, team.distribute(model))
            pipeline = stepper.strategy.division.pipeline  # type: ignore[attr-defined]
            if pipeline is not None:
                pipeline.known = Told()
            batching = recipe.batching.replace(pool=64, workers=0)
            with stream(recipe.data, tokenizer, batching, seq2seq=family == "moe", seed=3, shard=team.shard) as batches:
                some = [next(batches), next(batches)]
            stepper.take(some, 0.01)
            noted.places.clear()
            stepper.take(some, 0.01)
        found[name] = sorted(set(noted.places))
    return found


FAST = ["1f1b"]
OTHERS = [name for name in LAYOUTS if name not in FAST]


@pytest.mark.parametrize(
    ("rank", "layouts"),
    [(1, FAST), *(pytest.param(*given, marks=pytest.mark.slow) for given in [(0, FAST), (0, OTHERS), (1, OTHERS)])],
)
def test_steps_wait_for_the_device_only_where_the_host_has_to_know(rank: int, layouts: list[str]) -> None:
    command = [sys.executable, __file__, str(rank), *layouts]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert list(found) == layouts
    for name, places in found.items():
        assert set(places) <= ALLOWED.get(name, {LABELS}), name


def reads(ranks: Any, scale: dict[str, Any]) -> list[str]:
    """Every place in qkv or FSDP2 that reads a tensor in the second of two steps on CPUs."""
    import torch
    from same_steps import _prepared
    from transfers import Reads

    from qkv.data.loader.stream import stream
    from qkv.nn.models.build import build
    from qkv.training.parallel.scale import Scale
    from qkv.training.parallel.team import Team
    from qkv.training.step import Stepper

    recipe, tokenizer, spec = _prepared(
        "decoder", ("training.clip_norm=1.0", "training.accumulate=2", "model.n_layers=4")
    )
    value = Scale.from_dict(scale)
    team = Team(ranks, torch.device("cpu"), value, value.sizes(2))
    model = build(spec, seed=1).train()
    stepper = Stepper(model, recipe.objective, recipe.training, ranks, team.distribute(model))
    batching = recipe.batching.replace(pool=64, workers=0)
    with stream(recipe.data, tokenizer, batching, seq2seq=False, seed=3, shard=team.shard) as batches:
        some = [next(batches), next(batches)]
    stepper.take(some, 0.01)
    with Reads() as noted:
        stepper.take(some, 0.01)
    return sorted(set(noted.places))


def test_zero_3_reads_nothing_that_replicas_do_not_read(two: Any) -> None:
    replicas, sharded = two.run(reads, {})[0], two.run(reads, {"shard": 2})[0]
    assert replicas  # so reads are seen
    assert {place for place in sharded if not place.startswith("direct.py")} <= set(replicas)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2] / "helpers"))
    print(json.dumps(waits(int(sys.argv[1]), sys.argv[2:] or [*LAYOUTS])))
