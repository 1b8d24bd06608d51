"""Checkpoints written in the background: training continues, and a checkpoint is there as a whole or not at all."""

import threading

import pytest
import torch
from safetensors.torch import load_file
from train_stand_in import Tiny, train

from qkv.training.checkpoints import background, checkpoint
from qkv.training.checkpoints.checkpoint import Checkpoints, load_state, load_tensors


def contents(out):
    folders = sorted((out / "checkpoints").glob("step-*"))
    return {
        f"{folder.name}/{path.name}": load_file(path) for folder in folders for path in folder.glob("*.safetensors")
    }


def test_a_run_with_saves_in_the_background_is_the_same(tmp_path):
    for name, changes in (("at once", {}), ("background", {"async_save": True})):
        train(tmp_path / name, save_every=2, average={"kind": "running"}, **changes)
    wanted, found = contents(tmp_path / "at once"), contents(tmp_path / "background")
    assert wanted.keys() == found.keys() and len(wanted) >= 9
    for path, tensors in wanted.items():
        assert all(torch.equal(tensor, found[path][name]) for name, tensor in tensors.items())
    assert not list((tmp_path / "background" / "checkpoints").glob(".tmp-*"))


def test_training_continues_while_a_checkpoint_is_written(tmp_path, monkeypatch):
    """The files of step 4 are held back until step 8 begins, and have the weights of step 4 all the same."""
    release, steps, real = threading.Event(), [], checkpoint._write_files

    def held_back(folder, files):
        if "00000004" in folder.name:
            assert release.wait(60)
        return real(folder, files)

    def watched(position=None):
        from train_stand_in import open_stream

        for batch in open_stream(position):
            steps.append(sorted(path.name for path in (tmp_path / "held/checkpoints").glob("step-*")))
            if len(steps) == 16:  # two batches a step
                release.set()
            yield batch

    train(tmp_path / "plain", eval_every=None, keep=9)
    monkeypatch.setattr(checkpoint, "_write_files", held_back)
    assert not release.is_set()
    train(tmp_path / "held", Tiny(), watched, eval_every=None, keep=9, save_every=4, async_save=True)
    assert steps[15] == [], "step 8 began before the checkpoint of step 4 was there"
    wanted, found = contents(tmp_path / "plain"), contents(tmp_path / "held")
    assert wanted.keys() == found.keys()
    for path, tensors in wanted.items():
        assert all(torch.equal(tensor, found[path][name]) for name, tensor in tensors.items())


def test_a_crash_before_the_manifest_leaves_the_checkpoint_before(tmp_path):
    store = Checkpoints(tmp_path)
    weights = {"w": torch.arange(4.0)}
    store.save(1, {"model.safetensors": weights}, {"step": 1})
    store.begin(2, {"model.safetensors": weights}, {"step": 2})
    weights["w"].zero_()  # training continues
    store._pending.writing.result()
    assert [path.name for path in Checkpoints(tmp_path).all()] == ["step-00000001"]  # opened by the next process
    assert not list(tmp_path.glob(".tmp-*"))
    store.abandon()
    store.begin(2, {"model.safetensors": weights}, {"step": 2})
    store.finish()
    assert load_state(tmp_path / "step-00000002") == {"step": 2}
    assert torch.equal(load_tensors(tmp_path / "step-00000001", "model.safetensors")["w"], torch.arange(4.0))


def test_a_full_disk_is_told_when_the_save_is_finished(tmp_path, monkeypatch):
    store = Checkpoints(tmp_path)
    store.save(1, {"model.safetensors": {"w": torch.ones(2)}}, {})

    def full(folder, files):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "_write_files", full)
    store.begin(2, {"model.safetensors": {"w": torch.ones(2)}}, {})
    with pytest.raises(OSError, match=r"step-00000002 could not be saved: No space left.*step-00000001, is intact"):
        store.finish()
    assert [path.name for path in store.all()] == ["step-00000001"] and not list(tmp_path.glob(".tmp-*"))


def test_the_memory_of_a_snapshot():
    assert background.snapshot_bytes({"a": {"w": torch.ones(3, 5)}, "b": {"n": torch.ones(2, dtype=torch.int64)}}) == 76
