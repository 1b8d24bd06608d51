"""A file at its path is whole: what was there stays until the new one is on the disk."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from qkv.core import atomic


def test_a_file_gets_its_name_when_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen = tmp_path / "a", []
    path.write_text("old")
    sync = os.fsync
    monkeypatch.setattr(atomic.os, "fsync", lambda file: (seen.append(path.read_text()), sync(file)))
    with atomic.replacing(path) as beside:
        beside.write_text("new")
    assert path.read_text() == "new" and seen == ["old", "new"]  # the file before it is renamed, its folder after
    assert list(tmp_path.iterdir()) == [path]


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(RuntimeError), atomic.replacing(path) as beside:
        beside.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_file_system_that_syncs_no_folders_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = os.fsync

    def refuse(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(22, "Invalid argument")
        sync(file)

    monkeypatch.setattr(os, "fsync", refuse)
    with atomic.replacing(tmp_path / "a") as beside:
        beside.write_text("new")
    atomic.write_file(tmp_path / "b", b"new")
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text() == "new"


def test_a_file_is_replaced_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "last"
    atomic.write_file(path, b"one")

    def dies(handle: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "fsync", dies)
        atomic.write_file(path, b"two")
    assert path.read_bytes() == b"one"
    atomic.tidy(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["last"]


def test_tidy_brings_back_what_stood_aside(tmp_path: Path) -> None:
    for name in (".old-a", ".old-b", "b", ".tmp-c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    atomic.tidy(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]
    assert (tmp_path / "b/file").read_text() == "b"


def test_the_checksum_of_a_file_is_sha256(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    assert atomic.sha256(tmp_path / "f").startswith("ba7816bf8f01cfea414140de5dae2223")


def test_a_link_is_followed(tmp_path: Path) -> None:
    place, link = tmp_path / "far" / "a", tmp_path / "link"
    place.parent.mkdir()
    place.write_text("old")
    link.symlink_to(place)
    atomic.write_file(link, b"new")
    assert link.is_symlink() and place.read_text() == "new"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    atomic.write_file(tmp_path / "pipe", b"new")
    reader.join()
    assert read == [b"new"] and (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("name", ["n" * 255, "é" * 127, "😀" * 63])
def test_a_name_may_be_as_long_as_the_file_system_allows(tmp_path: Path, name: str) -> None:
    atomic.write_file(tmp_path / name, b"new")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    (tmp_path / name).unlink()
    for text in ("1", "2"):
        with atomic.replacing_folder(tmp_path / name) as new:
            (new / "a").write_text(text)
    with atomic.beginning(tmp_path / name) as new:
        (new / "a").write_text("3")
    assert (atomic.old(tmp_path / name) / "a").read_text() == "2"
    atomic.put_back(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name] and content(tmp_path / name) == {"a": "2"}


def test_a_link_that_leads_to_itself_is_refused_and_one_to_nothing_gets_its_folder(tmp_path: Path) -> None:
    loop, link = tmp_path / "loop", tmp_path / "link"
    loop.symlink_to("loop")
    link.symlink_to("far/away")
    for write in (
        lambda: atomic.write_file(loop, b""),
        lambda: atomic.claim(loop),
        lambda: atomic.make_folder(loop),
        lambda: atomic.check_replaceable(loop),
    ):
        with pytest.raises(ValueError, match="leads back to itself"):
            write()
    atomic.make_folder(link)
    assert (tmp_path / "far" / "away").is_dir()


def test_a_directory_without_permission_is_named_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # root may write everywhere
    for check in (atomic.claim, atomic.check_replaceable, atomic.check_folder):
        with pytest.raises(ValueError, match="this user may not write into"):
            check(tmp_path / "new" / "a")


def test_an_error_names_the_file_and_not_the_temporary_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        atomic.write_file(tmp_path / "missing" / "a", b"new")
    assert caught.value.filename == str(tmp_path / "missing" / "a")


WRITER = """
import sys
from pathlib import Path
from qkv.core import atomic
path, content = Path(sys.argv[1]), sys.argv[2].encode()
atomic.claim(path)
print("claimed", flush=True)
sys.stdin.readline()
try:
    atomic.write_file(path, content)
except ValueError as error:
    sys.exit(str(error))
"""


def test_of_two_processes_that_write_one_new_file_the_first_wins_and_the_other_says_so(tmp_path: Path) -> None:
    def begin(content: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WRITER, "out.csv", content]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, cwd=tmp_path, text=True, **pipes)

    with begin("one") as one, begin("two") as two:
        assert one.stdout and two.stdout and one.stdout.readline() == two.stdout.readline() == "claimed\n"
        assert one.communicate("go\n") == ("", "")
        assert two.communicate("go\n")[1] == (
            "another process has written out.csv in the meantime, and it is kept; choose another name, or move that file "
            "and try again\n"
        )
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("out.csv", "one")]


@pytest.fixture(params=["rename", "link", "neither"])
def at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the file system has: a rename to free names only, links, or neither."""
    if request.param == "rename":
        return
    monkeypatch.setattr(atomic, "_renamed_with", lambda one, other, flag: False)
    if request.param == "neither":

        def refused(path: Path, target: Path) -> None:
            raise OSError(1, "Operation not permitted")

        monkeypatch.setattr(Path, "hardlink_to", refused)


@pytest.mark.usefixtures("at_once")
def test_a_claimed_file_replaces_nothing_that_came_since(tmp_path: Path) -> None:
    free, taken = tmp_path / "free", tmp_path / "taken"
    for path in (free, taken):
        atomic.claim(path)
    taken.write_text("of another process")
    atomic.write_file(free, b"new")
    with pytest.raises(ValueError, match=r"another process has written .*taken in the meantime"):
        atomic.write_file(taken, b"new")
    assert (free.read_text(), taken.read_text()) == ("new", "of another process")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["free", "taken"]
    atomic.write_file(free, b"newer")  # its first writer is this process
    assert free.read_text() == "newer"


def test_a_claim_is_refused_where_a_file_is_and_allowed_to_overwrite(tmp_path: Path) -> None:
    path, link = tmp_path / "a", tmp_path / "link"
    link.symlink_to(path)
    atomic.claim(link)
    path.write_text("old")
    for place in (path, link):
        with pytest.raises(ValueError, match="already exists; replace it with --overwrite, or choose another name"):
            atomic.claim(place)
    with pytest.raises(ValueError, match="in the meantime"):
        atomic.write_file(link, b"new")
    atomic.claim(path, overwrite=True)
    atomic.write_file(link, b"new")
    assert path.read_text() == "new" and link.is_symlink()
    with pytest.raises(ValueError, match="is a directory"):
        atomic.claim(tmp_path)


# -- folders -------------------------------------------------------------------------------------------------------------


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def made(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(params=["exchange", "aside"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether the system exchanges the names of folders."""
    if request.param == "aside":
        monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)
    elif not hasattr(os, "getuid"):
        pytest.skip("Windows can't exchange names")
    return request.param


def test_a_folder_replaces_another_as_a_whole(tmp_path: Path, how: str) -> None:
    target = made(tmp_path / "out", a="1", b="1")
    with atomic.replacing_folder(target) as new:
        (new / "a").write_text("2")
        assert content(target) == {"a": "1", "b": "1"}
    assert content(target) == {"a": "2"} and list(tmp_path.iterdir()) == [target]


def test_a_block_inside_another_writes_into_the_same_folder(tmp_path: Path) -> None:
    with atomic.replacing_folder(tmp_path / "out") as new:
        (new / "a").write_text("1")
        with atomic.replacing_folder(new) as same:
            (same / "b").write_text("2")
        assert [path.name for path in tmp_path.iterdir()] == [new.name]
    assert content(tmp_path / "out") == {"a": "1", "b": "2"}


def test_folders_on_this_system_exchange_their_names(tmp_path: Path) -> None:
    one, other = made(tmp_path / "one", a="1"), made(tmp_path / "other", b="2")
    if not atomic._exchange(one, other):
        pytest.skip("this file system can't exchange names")
    assert (content(one), content(other)) == ({"b": "2"}, {"a": "1"})


def test_a_block_that_fails_leaves_the_old_folder(tmp_path: Path, how: str) -> None:
    target = made(tmp_path / "out", a="1")
    with pytest.raises(RuntimeError), atomic.replacing_folder(target) as new:
        (new / "a").write_text("2")
        raise RuntimeError
    assert content(target) == {"a": "1"} and list(tmp_path.iterdir()) == [target]


def test_a_rename_that_fails_puts_the_old_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, rename = made(tmp_path / "out", a="1"), Path.rename

    def refused(self: Path, name: Path) -> Path:
        if self.name.startswith(".tmp-"):
            raise OSError(5, "Input/output error")
        return rename(self, name)

    monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)
    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(OSError, match="Input/output"), atomic.replacing_folder(target):
        pass
    assert content(target) == {"a": "1"} and list(tmp_path.iterdir()) == [target]


def test_a_folder_that_came_to_hold_something_else_is_not_replaced(tmp_path: Path) -> None:
    target = made(tmp_path / "out", a="1")

    def check(folder: Path) -> None:
        if (folder / "notes").exists():
            raise ValueError("notes")

    with pytest.raises(ValueError, match="notes"), atomic.replacing_folder(target, check):
        (target / "notes").write_text("mine")
    assert content(target) == {"a": "1", "notes": "mine"}


def test_a_folder_that_comes_just_before_the_rename_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, rename = tmp_path / "out", Path.rename

    def late(path: Path, name: Path) -> Path:
        if not target.exists():
            target.mkdir()
            (target / "other").write_text("of another process")
        return rename(path, name)

    def refuse(folder: Path) -> None:
        raise ValueError("there is a model")

    monkeypatch.setattr(Path, "rename", late)
    with pytest.raises(ValueError, match="there is a model"), atomic.replacing_folder(target, refuse) as new:
        (new / "own").write_text("")
    assert [path.name for path in target.iterdir()] == ["other"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_cannot_be_replaced_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "here" / "inside").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here" / "inside")
    for target, said in (("file", "is a file"), ("here", "working directory"), ("here/inside", "working directory")):
        with pytest.raises(ValueError, match=said):
            atomic.check_replaceable(tmp_path / target)
    with pytest.raises(ValueError, match="mount point"):
        atomic.check_replaceable(Path("/proc"))


def test_a_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    target = made(tmp_path / "far", a="1")
    (tmp_path / "link").symlink_to(target)
    with atomic.replacing_folder(tmp_path / "link") as new:
        (new / "a").write_text("2")
    assert (tmp_path / "link").is_symlink() and content(target) == {"a": "2"}


def test_a_folder_that_is_replaced_over_hours_is_kept_until_the_new_one_is_finished(tmp_path: Path) -> None:
    target = made(tmp_path / "out", a="1")
    for text in ("2", "3"):  # the second replaces the unfinished first
        with atomic.beginning(target) as new:
            (new / "a").write_text(text)
        assert content(target) == {"a": text} and content(atomic.old(target)) == {"a": "1"}
    atomic.put_back(target)
    assert content(target) == {"a": "1"} and list(tmp_path.iterdir()) == [target]
    with atomic.beginning(target) as new:
        (new / "a").write_text("4")
    atomic.drop_old(target)
    assert content(target) == {"a": "4"} and list(tmp_path.iterdir()) == [target]


def test_a_folder_whose_replacement_was_killed_between_two_renames_is_recovered(tmp_path: Path) -> None:
    target = made(tmp_path / "out", a="1")
    atomic.set_aside(target)
    atomic.recover(target)
    assert content(target) == {"a": "1"} and list(tmp_path.iterdir()) == [target]


def test_what_processes_that_are_gone_left_is_deleted_and_nothing_else(tmp_path: Path) -> None:
    host, gone = atomic._host(), 2**22 + 1  # more than any process has
    mine = f".tmp-out-{host}-{os.getpid()}-00000000"
    elsewhere, other = f".tmp-out-00000000-{gone}-00000000", f".tmp-other-{host}-{gone}-00000000"
    left = (f".tmp-out-{host}-{gone}-00000000", f".tmp-.old-out-{host}-{gone}-00000000")
    for name in (*left, mine, elsewhere, other, ".tmp-out"):
        made(tmp_path / name)
    with atomic.replacing_folder(tmp_path / "out"):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"out", mine, elsewhere, other, ".tmp-out"}


def test_too_little_room_is_said_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"takes 1,152,921,504,606\.8 MB, and its disk has [\d,.]+ MB free"):
        atomic.check_room(tmp_path / "a" / "b", 1 << 60)
    assert not list(tmp_path.iterdir())


def test_too_little_room_is_told_of_the_name_that_was_given(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"model/a\.gguf takes [\d,.]+ MB, and its disk has .* free") as error:
        atomic.check_room(tmp_path / ".tmp-model-0bbfd16a-4249-e500cbc3" / "a.gguf", 1 << 60)
    assert ".tmp-" not in str(error.value)


def test_a_full_disk_is_said_in_the_users_names_and_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil._ntuple_diskusage(10**6, 980_000, 20_480)  # type: ignore[attr-defined]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    sentence = (
        f"{tmp_path / 'q'} takes 45,678 bytes, and its disk has 20,480 bytes free; free some, or choose another disk"
    )
    with pytest.raises(OSError) as raised, atomic.replacing_folder(tmp_path / "q") as folder:
        atomic.check_room(folder, 45_678)
    assert str(raised.value) == f"{sentence}; nothing was written"
    with pytest.raises(OSError) as raised, atomic.replacing_folder(tmp_path / "q") as folder:
        raise OSError(errno.ENOSPC, "No space left on device", str(folder / "model.safetensors"))
    assert raised.value.filename == str(tmp_path / "q" / "model.safetensors") and not list(tmp_path.iterdir())


def test_of_several_files_none_is_replaced_or_deleted_if_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, c = (tmp_path / name for name in "abc")
    for path in (a, b, c):
        path.write_bytes(b"old")
    real, synced = atomic.sync_file, list[Path]()

    def full(path: Path) -> None:
        synced.append(path)
        if len(synced) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        real(path)

    with monkeypatch.context() as patched, pytest.raises(OSError, match="space"):
        patched.setattr(atomic, "sync_file", full)
        atomic.write_files({a: b"new", b: b"new"}, [c])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == dict.fromkeys("abc", b"old")
    atomic.write_files({a: b"new", b: b"new"}, [c])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == dict.fromkeys("ab", b"new")
