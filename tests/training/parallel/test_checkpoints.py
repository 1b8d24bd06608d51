"""Checkpoints of several ranks: sharded, resumed bit for bit, and on another number of ranks or with another layout."""

import json

import pytest
import torch
from fast_subset import fast
from safetensors.torch import load_file
from same_steps import bytes_of_a_resume, flip_a_bit, nan_on_one_rank, train_to

from qkv.core.ranks import ALONE
from qkv.training.checkpoints.checkpoint import Damaged, load_tensors

pytestmark = pytest.mark.xdist_group("ranks")
ZERO3, ZERO1 = {"shard": 2}, {"shard": 2, "zero": 1}
TENSOR, CONTEXT, EXPERT, PIPELINE = {"tensor": 2}, {"context": 2}, {"expert": 2}, {"pipeline": 2}
LAYOUTS = {
    "replicas": {}, "zero 1": ZERO1, "zero 3": ZERO3, "tensor": TENSOR, "context": CONTEXT, "expert": EXPERT,
    "pipeline": PIPELINE,
}  # fmt: skip


def evaluations(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: line[name] for name in ("step", "loss", "searched")} for line in lines if line["type"] == "eval"]


@pytest.mark.parametrize("layout", fast(LAYOUTS, "zero 3"))
def test_running_averages_and_their_evaluations_match_one_rank(two, tmp_path, layout):
    """The loss, and what a beam search of three beams finds, of the whole model with averaged weights."""
    settings = ("training.average={kind: running, decay: 0.7}",)
    train_to(ALONE, str(tmp_path / "one"), 6, None, settings, False, True)
    two.run(train_to, str(tmp_path / "two"), 6, LAYOUTS[layout], settings, False, True)
    found, wanted = evaluations(tmp_path / "two"), evaluations(tmp_path / "one")
    assert len(wanted) == 3 and len({line["searched"] for line in wanted}) > 1
    assert found == [pytest.approx(line, rel=1e-9) for line in wanted]
    close(tmp_path / "one", tmp_path / "two")


def files(folder):
    return sorted(path.name for path in (folder / "checkpoints" / "step-00000006").iterdir())


def close(a, b):
    one, other = load_file(a / "model.safetensors"), load_file(b / "model.safetensors")
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        if not name.endswith(".k.bias"):
            torch.testing.assert_close(other[name], tensor, rtol=1e-9, atol=1e-10, msg=name)


@pytest.mark.parametrize("layout", fast(LAYOUTS, "zero 3"))
def test_a_resumed_run_continues_bit_for_bit(two, tmp_path, layout):
    scale = LAYOUTS[layout]
    dropout = ("model.dropout=0.1",)
    assert two.run(train_to, str(tmp_path / "whole"), 6, scale, dropout) == ["max_steps"] * 2
    two.run(train_to, str(tmp_path / "halves"), 3, scale, dropout)
    two.run(train_to, str(tmp_path / "halves"), 6, scale, dropout, True)
    assert files(tmp_path / "whole") == files(tmp_path / "halves")
    for name in ("model.safetensors", *(f"checkpoints/step-00000006/{n}" for n in files(tmp_path / "whole"))):
        if name.endswith(".safetensors"):
            whole, halves = load_file(tmp_path / "whole" / name), load_file(tmp_path / "halves" / name)
            assert whole.keys() == halves.keys() and all(torch.equal(whole[key], halves[key]) for key in whole)


def test_checkpoints_are_sharded_where_ranks_have_different_parts(two, tmp_path):
    two.run(train_to, str(tmp_path), 6, ZERO3)
    both = [f"{kind}-0000{n}-of-00002.safetensors" for kind in ("model", "optimizer") for n in (1, 2)]
    assert files(tmp_path) == [*both, "state.json"]
    sizes = [(tmp_path / "checkpoints/step-00000006" / name).stat().st_size for name in both]
    assert max(sizes[:2]) < 1.2 * min(sizes[:2])


@pytest.mark.parametrize(
    "change",
    fast([(ZERO3, {}), ({}, ZERO3), (ZERO1, ZERO3), (ZERO3, None), (None, ZERO1), (TENSOR, None), (None, TENSOR),
          (TENSOR, ZERO3), (EXPERT, TENSOR), (CONTEXT, EXPERT), (PIPELINE, None), (TENSOR, PIPELINE), (PIPELINE, ZERO3)],
         (ZERO1, ZERO3), (PIPELINE, None)),
    ids=lambda change: " then ".join("one rank" if scale is None else str(scale) for scale in change),
)  # fmt: skip
def test_resumed_with_another_layout_or_number_of_ranks(two, tmp_path, change):
    """None is one rank."""
    first, then = change
    train_to(ALONE, str(tmp_path / "one"), 6)
    for steps, scale in ((3, first), (6, then)):
        if scale is None:
            train_to(ALONE, str(tmp_path / "run"), steps, None, (), steps == 6)
        else:
            two.run(train_to, str(tmp_path / "run"), steps, scale, (), steps == 6)
    close(tmp_path / "one", tmp_path / "run")


@pytest.mark.slow
def test_saved_on_four_ranks_and_resumed_on_two_and_one(two, four, tmp_path):
    train_to(ALONE, str(tmp_path / "one"), 9)
    four.run(train_to, str(tmp_path / "run"), 3, {"data": 2, "shard": 2})
    two.run(train_to, str(tmp_path / "run"), 6, ZERO3, (), True)
    train_to(ALONE, str(tmp_path / "run"), 9, None, (), True)
    close(tmp_path / "one", tmp_path / "run")


def test_a_missing_or_changed_shard_is_named(two, tmp_path):
    two.run(train_to, str(tmp_path), 3, ZERO3)
    checkpoint = tmp_path / "checkpoints/step-00000003"
    shard = checkpoint / "model-00002-of-00002.safetensors"
    content = shard.read_bytes()
    shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(Damaged, match=r"model-00002-of-00002\.safetensors was changed"):
        load_tensors(checkpoint, "model.safetensors")
    shard.unlink()
    with pytest.raises(Damaged, match=r"model-00002-of-00002\.safetensors is missing"):
        load_tensors(checkpoint, "model.safetensors")


def test_a_resume_without_a_shard_ends_on_every_rank_with_its_name(two, tmp_path):
    two.run(train_to, str(tmp_path), 3, ZERO3)
    (tmp_path / "checkpoints/step-00000003/optimizer-00002-of-00002.safetensors").unlink()
    for message in two.run(refused_resume, str(tmp_path)):
        assert message.count("optimizer-00002-of-00002.safetensors is missing") == 1 and "\n" not in message
    assert (tmp_path / "checkpoints/step-00000003").is_dir()


def refused_resume(ranks, folder):
    """The message with which a resume ends."""
    with pytest.raises(ValueError) as raised:
        train_to(ranks, folder, 6, ZERO3, (), True)
    return str(raised.value)


def test_the_manifest_names_every_shard(two, tmp_path):
    two.run(train_to, str(tmp_path), 3, ZERO3)
    state = json.loads((tmp_path / "checkpoints/step-00000003/state.json").read_text())
    assert len(state["files"]) == 4 and len(state["state"]["rng_of_other_ranks"]) == 1


def test_a_corrupted_copy_of_the_weights_is_found_before_it_is_saved(two, tmp_path):
    messages = two.run(flip_a_bit, str(tmp_path))
    assert all("the weights of rank 1 differ from the weights of rank 0" in message for message in messages)
    assert not list(tmp_path.glob("checkpoints/step-*"))


def test_nan_on_one_rank_stops_the_step_on_all(two):
    assert two.run(nan_on_one_rank) == [("unchanged", 1.0)] * 2


@pytest.mark.parametrize("layout", fast(["zero 3", "pipeline", "tensor"], "zero 3"))
def test_a_resume_and_a_delivery_allocate_the_rank_s_part_alone(two, tmp_path, layout):
    two.run(train_to, str(tmp_path), 3, LAYOUTS[layout], ("training.optimizer={kind: adamw}",))
    for rank, (resumed, part, delivered) in enumerate(two.run(bytes_of_a_resume, str(tmp_path), LAYOUTS[layout])):
        assert resumed <= 1.05 * part
        # A third of it is the model. Rank 0 writes the whole, one tensor at a time.
        assert delivered <= 0.5 * part if rank else delivered <= 1.2 * part
