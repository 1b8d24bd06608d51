import errno
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qkv.core import atomic
from qkv.training.checkpoints import checkpoint
from qkv.training.checkpoints.checkpoint import (
    MODEL,
    OPTIMIZER,
    STATE,
    Checkpoints,
    Damaged,
    load_state,
    load_tensors,
    step_of,
)


def save(store: Checkpoints, step: int, **options) -> Path:
    tensors = {"w": torch.full((64,), float(step)), "n": torch.tensor(step)}
    return store.save(step, {MODEL: tensors, OPTIMIZER: tensors}, {"step": step, "position": {"é": [1.5]}}, **options)


def steps(store: Checkpoints) -> list[int]:
    return [step_of(path) for path in store.all()]


def test_what_is_saved_is_read_back(tmp_path):
    path = save(Checkpoints(tmp_path / "c"), 7)
    assert path.name == "step-00000007" and (tmp_path / "c/last").read_text() == "step-00000007\n"
    assert load_state(path) == {"step": 7, "position": {"é": [1.5]}}
    tensors = load_tensors(path, MODEL)
    assert tensors["w"].tolist() == [7.0] * 64 and tensors["n"].item() == 7


def test_the_last_and_the_best_stay(tmp_path):
    store = Checkpoints(tmp_path, keep=2)
    for step in range(1, 7):
        save(store, step, best=step in (1, 2))
    assert steps(store) == [2, 5, 6]
    assert store.best() == tmp_path / "step-00000002" and store.newest() == tmp_path / "step-00000006"


def test_a_temporary_checkpoint_pushes_none_out_and_goes_at_the_next_save(tmp_path):
    store = Checkpoints(tmp_path, keep=2)
    save(store, 2), save(store, 4), save(store, 5, temporary=True)
    assert steps(store) == [2, 4, 5]
    again = Checkpoints(tmp_path, keep=2)
    again.go_on_from(again.newest())
    save(again, 6)
    assert steps(again) == [4, 6]


def test_what_a_killed_save_had_still_to_do_is_done_when_the_run_continues(tmp_path, monkeypatch):
    store = Checkpoints(tmp_path, keep=2)
    save(store, 2, best=True), save(store, 4), save(store, 5, temporary=True)
    with monkeypatch.context() as patch:
        patch.setattr(atomic, "remove_folder", lambda path: None)
        patch.setattr(Checkpoints, "_point", lambda *_: None)
        save(store, 6), save(store, 8)
    again = Checkpoints(tmp_path, keep=2)
    assert steps(again) == [2, 4, 5, 6, 8]
    again.go_on_from(again.newest())
    assert steps(again) == [2, 6, 8] and (tmp_path / "last").read_text() == "step-00000008\n"


def test_a_checkpoint_can_be_saved_again(tmp_path):
    store = Checkpoints(tmp_path)
    save(store, 3), save(store, 3, best=True)
    assert steps(store) == [3] and load_state(store.best())["step"] == 3


@pytest.mark.parametrize("name", ["../elsewhere", "step-00000002", ""])
def test_the_newest_state_says_which_is_the_best_whatever_the_pointers_say(tmp_path, name):
    store = Checkpoints(tmp_path / "c")
    best = save(store, 1, best=True)
    save(store, 2), save(store, 3)
    (tmp_path / "elsewhere").mkdir()
    for pointer in ("best", "last"):
        (tmp_path / "c" / pointer).write_text(name)
    assert Checkpoints(tmp_path / "c").best() == best
    (tmp_path / "c/best").unlink()
    for step in range(4, 9):
        save(store, step)
    assert store.best() == best


@pytest.mark.parametrize("name", ["../elsewhere", "step-00000009", ""])
def test_a_best_that_is_no_checkpoint_is_none(tmp_path, name):
    store = Checkpoints(tmp_path / "c")
    (tmp_path / "elsewhere").mkdir()
    rewrite(save(store, 1), best=name)
    assert store.best() is None


def rewrite(path: Path, **changes) -> None:
    """Change a checkpoint's state.json and make its checksum fit; `...` takes a part out."""
    content = json.loads((path / STATE).read_text())
    content.pop("sha256")
    content = {key: value for key, value in {**content, **changes}.items() if value is not ...}
    (path / STATE).write_text(json.dumps({"sha256": checkpoint._digest(content), **content}))


@pytest.mark.parametrize("text", ["[]", "null", "3", "{}", '{"sha256": []}', "[" * 100_000])
def test_a_state_that_is_no_object_is_named(tmp_path, text):
    path = save(Checkpoints(tmp_path), 1)
    (path / STATE).write_text(text)
    with pytest.raises(Damaged, match=STATE):
        load_state(path)


@pytest.mark.parametrize(
    "changes",
    [{"files": []}, {"files": {MODEL: 3}}, {"files": {MODEL: {}}}, {"state": []}, {"best": 4}, {"state": ...}],
)
def test_a_state_of_another_form_is_named_though_its_checksum_fits(tmp_path, changes):
    path = save(Checkpoints(tmp_path), 1)
    rewrite(path, **changes)
    with pytest.raises(Damaged, match=STATE):
        load_tensors(path, MODEL)


@pytest.mark.parametrize("name", [MODEL, OPTIMIZER, STATE])
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_one_flipped_bit_names_the_file(tmp_path, name, data):
    store = Checkpoints(tmp_path)
    path = save(store, 1) / name
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=name):
        load_state(path.parent)
        load_tensors(path.parent, MODEL)
        load_tensors(path.parent, OPTIMIZER)


@pytest.mark.parametrize("name", [MODEL, STATE])
@pytest.mark.parametrize("kept", [0, 0.5, 0.99])
def test_a_file_cut_short_names_the_file(tmp_path, name, kept):
    path = save(Checkpoints(tmp_path), 1) / name
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(ValueError, match=name):
        load_tensors(path.parent, MODEL)


@pytest.mark.parametrize("name", [MODEL, STATE])
def test_a_missing_file_is_named(tmp_path, name):
    path = save(Checkpoints(tmp_path), 1)
    (path / name).unlink()
    with pytest.raises(ValueError, match=rf"{name} is missing"):
        load_tensors(path, MODEL)
    with pytest.raises(ValueError, match="has no other"):
        load_tensors(save(Checkpoints(tmp_path), 1), "other")


CALLS = ("write_tensors", "sync_file", "sha256", "write_file", "replace_folder")


@pytest.mark.parametrize("call", CALLS)
def test_a_full_disk_is_a_clear_error_and_the_checkpoint_before_stays(tmp_path, monkeypatch, call):
    store = Checkpoints(tmp_path)
    before = save(store, 1)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint if call == "write_tensors" else atomic, call, full)
        with pytest.raises(OSError, match=r"step-00000002 could not be saved: No space left.*step-00000001, is intact"):
            save(store, 2)
    assert [p.name for p in tmp_path.glob(".*")] == [] and steps(store) == [1]
    assert load_tensors(before, MODEL)["w"][0] == 1.0
    save(store, 2)
    assert steps(store) == [1, 2]


def test_a_real_write_error_in_the_middle_of_a_file_is_an_oserror(tmp_path):
    store = Checkpoints(tmp_path)
    save(store, 1)
    big = {"w": torch.zeros(100_000)}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
        with pytest.raises(OSError, match=r"could not be saved.*is intact"):
            store.save(2, {MODEL: big}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert steps(Checkpoints(tmp_path)) == [1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_an_oserror(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match="could not be saved"):
        save(Checkpoints(tmp_path / "c"), 1)
    tmp_path.chmod(0o700)


class Killed(BaseException):
    """The process is gone: nothing is cleaned up after it."""


def remove_one_by_one(folder: Path, ignore_errors: bool = False) -> None:
    """What `shutil.rmtree` does, in calls that can be counted."""
    for path in sorted(folder.iterdir()):
        path.unlink()
    folder.rmdir()


@pytest.mark.parametrize("again", [False, True], ids=["new", "replaced"])
def test_killed_at_every_call_of_a_save(tmp_path, monkeypatch, again):
    """Deterministic, and so complete: a save that stops at its n-th system call, for every n."""
    patched = [(os, "fsync"), (Path, "rename"), (Path, "replace"), (Path, "mkdir"), (checkpoint, "write_tensors")]
    patched += [(Path, "unlink"), (Path, "rmdir")]
    monkeypatch.setattr(atomic.shutil, "rmtree", remove_one_by_one)
    for n in range(200):
        root = tmp_path / str(n)
        store = Checkpoints(root, keep=1)
        save(store, 1), save(store, 2)
        step, left = (2 if again else 3), [n]
        with monkeypatch.context() as patch:
            for owner, name in patched:
                real = getattr(owner, name)

                def dying(*args, real=real, left=left, **options):
                    left[0] -= 1
                    if left[0] < 0:
                        raise Killed
                    return real(*args, **options)

                patch.setattr(owner, name, dying)
            try:
                save(store, step)
                finished = True
            except Killed:
                finished = False
        after = Checkpoints(root, keep=1)
        assert after.newest() is not None and step_of(after.newest()) in (2, step)
        newest = step_of(after.newest())
        for path in after.all():
            assert load_state(path)["step"] == step_of(path) == load_tensors(path, MODEL)["n"].item()
        assert (root / (root / "last").read_text().strip()).is_dir() or newest == 3
        assert not list(root.glob(".*"))
        if finished:
            assert n > 10
            return
    pytest.fail("the save never ended")


def kill_trials(root: Path, trials: int, seed: int) -> list[dict]:
    script = Path(__file__).with_name("train_kill_save.py")
    command = [sys.executable, str(script), str(root), str(trials), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=280)
    return [json.loads(line) for line in done.stdout.splitlines()]


def sound(results: list[dict], trials: int) -> None:
    assert [r for r in results if "wrong" in r] == []
    assert len(results) == trials
    assert max(r["step"] for r in results) > 2


@pytest.mark.slow  # every call of a save is tried above
def test_kill_9_while_saving(tmp_path):
    sound(kill_trials(tmp_path / "c", 12, seed=0), 12)


@pytest.mark.slow
def test_kill_9_while_saving_100_times(tmp_path):
    sound(kill_trials(tmp_path / "c", 100, seed=1), 100)
