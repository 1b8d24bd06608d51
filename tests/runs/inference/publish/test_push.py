"""`qkv push` and `run.push`, against a server that answers as the Hub does."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hub_here import hub_here
from hub_server import Hub, Repository
from run_untrained import TINY, of, words

import qkv
from qkv.core import atomic
from qkv.runs.inference.run import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    of("gpt2", words(), "continue", max_positions=32).save(tmp_path / "run", to="qkv")
    return qkv.load(tmp_path / "run")


def test_a_run_goes_to_a_new_repository_and_loads_by_its_name(hub: Hub, run: Run) -> None:
    done = run.push("me/one", private=True, message="First")
    there = hub.repositories["me/one"]
    assert there.private and there.messages == ["initial commit", "First"]
    assert set(done.files) == there.files().keys() - {".gitattributes"} >= {"README.md", "model.safetensors"}
    assert done.commit == there.branches["main"] and done.url == f"{hub.address}/me/one/commit/{done.commit}"
    again = qkv.load("me/one")
    assert again.generate("ab") == run.generate("ab")
    torch.testing.assert_close(again.model.state_dict(), run.model.state_dict(), rtol=0, atol=0)


def test_a_branch_is_made_and_loads_by_name_at_revision(hub: Hub, run: Run) -> None:
    run.push("me/one", revision="dev")
    there = hub.repositories["me/one"]
    assert set(there.files()) == {".gitattributes"} and "config.json" in there.files("dev")
    for commit in ("dev", there.branches["dev"]):
        assert qkv.load(f"me/one@{commit}").generate("ab") == run.generate("ab")
    assert qkv.load("me/one", revision="dev").generate("ab") == run.generate("ab")
    with pytest.raises(ValueError, match="names the revision 'dev', and 'main' is given beside it"):
        qkv.load("me/one@dev", revision="main")
    with pytest.raises(ValueError, match="me/one has no branch, tag or commit 'gone'"):
        qkv.load("me/one@gone")
    with pytest.raises(ValueError, match=r"me/one on the Hub has no model\.safetensors, so there is nothing to load"):
        qkv.load("me/one")


def test_the_commit_removes_files_of_the_model_before_and_nothing_else(hub: Hub, run: Run) -> None:
    there = hub.repositories["me/one"] = Repository()
    old = dict.fromkeys(("model-00001-of-00002.safetensors", "spiece.model", "notes.txt", "config.json"), b"old")
    there.commit("main", old)
    done = run.push("me/one")
    assert done.removed == ("model-00001-of-00002.safetensors", "spiece.model")
    assert there.files()["notes.txt"] == b"old" and there.files()["config.json"] != b"old"
    assert not set(done.removed) & set(there.files())
    qkv.load("me/one")


def test_a_card_that_somebody_wrote_or_edited_stays(hub: Hub, run: Run) -> None:
    there = hub.repositories["me/one"] = Repository()
    there.commit("main", {"README.md": b"# Mine\n"})
    assert run.push("me/one").kept_card and there.files()["README.md"] == b"# Mine\n"
    written = run.push("me/two")
    assert not written.kept_card and not run.push("me/two", license="mit").kept_card
    two = hub.repositories["me/two"]
    assert b"license: mit" in two.files()["README.md"]
    edited = two.files()["README.md"].replace(b"# two", b"# My two")
    two.commit("main", {**two.files(), "README.md": edited})
    assert run.push("me/two").kept_card and two.files()["README.md"] == edited


def test_a_dry_run_asks_nothing_and_leaves_nothing(hub: Hub, run: Run, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    done = run.push("me/one", dry_run=True)
    assert done.commit is None and done.files["model.safetensors"] > 1000 and "README.md" in done.files
    assert not hub.asked and sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ["one", "me/o ne", "a/b/c", "../x", "me/one--two", "me/", "me/one.git", "/me/one", ""])
def test_names_that_no_repository_can_have(run: Run, name: str) -> None:
    pytest.importorskip("huggingface_hub", reason="an optional dependency")
    with pytest.raises(ValueError, match=r"owner/name|can't be a name on the Hub"):
        run.push(name, dry_run=True)


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (None, "there is no token of the Hub on this machine; `hf auth login`"),
        ("reads", "the token on this machine may only read"),
        ("fine", "the token on this machine has no right to that in me/one"),
        ("wrong", "the token on this machine is not valid"),
    ],
)
def test_tokens_that_do_not_suffice(
    token: str | None, said: str, run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), hub_here(tmp_path, token) as here, pytest.raises(ValueError) as error:
        run.push("me/one")
    assert said in str(error.value) and "\n" not in str(error.value) and not here.repositories
    assert token is None or token == "reads" or token not in f"{error.value}{caplog.text}"


def test_a_public_repository_is_not_taken_for_a_private_one(hub: Hub, run: Run) -> None:
    there = hub.repositories["me/one"] = Repository()
    there.commit("main", {"a.txt": b""})
    with pytest.raises(ValueError, match="me/one exists and is public, and --private is for new repositories"):
        run.push("me/one", private=True)
    assert len(there.commits) == 1


def test_a_push_between_is_not_overwritten(hub: Hub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    run.push("me/one")
    there, ask = hub.repositories["me/one"], huggingface_hub.HfApi.create_commit

    def meanwhile(*args: object, **options: object) -> object:
        there.commit("main", {"theirs.txt": b"1"})
        return ask(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(huggingface_hub.HfApi, "create_commit", meanwhile)
    with pytest.raises(ValueError, match="the push to me/one failed: somebody else changed me/one meanwhile"):
        run.push("me/one", license="mit")
    assert set(there.files()) == {"theirs.txt"}


def test_an_upload_that_breaks_off_leaves_the_repository_and_the_disk_as_they_were(
    hub: Hub, run: Run, tmp_path: Path
) -> None:
    run.push("me/one")
    before = dict(hub.repositories["me/one"].files())
    hub.large.clear()
    hub.broken, hub.status = "PUT /large/", 400
    run = run.quantize("int8").dequantize()  # other weights, which are uploaded
    with pytest.raises(ValueError, match="the push to me/one failed: ") as error:
        run.push("me/one", license="mit")
    assert "\n" not in str(error.value) and hub.repositories["me/one"].files() == before
    assert not list(tmp_path.glob(".tmp-*"))


def test_a_full_disk_ends_it_before_the_hub_is_changed(
    hub: Hub, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(OSError, match="its disk has 10 bytes free"):
        run.push("me/one")
    assert not hub.repositories and not list(tmp_path.glob(".tmp-*"))


def test_a_model_without_a_family_goes_too(hub: Hub) -> None:
    run = of("llama", words(), "continue", {"decoder.position": qkv.ALiBi()}, max_positions=32, **TINY)
    with pytest.warns(UserWarning, match=r"after `import qkv\.transformers`"):
        run.push("me/alibi")
    files = hub.repositories["me/alibi"].files()
    assert b"import qkv.transformers" in files["README.md"] and b"library_name: qkv" in files["README.md"]
    assert qkv.load("me/alibi").generate("ab") == run.generate("ab")


@pytest.mark.slow
def test_a_killed_push_leaves_a_folder_that_the_next_one_removes(run: Run, hub: Hub, tmp_path: Path) -> None:
    code = (
        "import os, qkv, sys\nimport qkv.runs.inference.publish.push as p\n"
        "p._upload = lambda *_: os._exit(9)\n"
        f"qkv.load({str(tmp_path / 'run')!r}).push('me/one')"
    )
    env = {**os.environ, "HF_ENDPOINT": hub.address}
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == 9
    assert len(list(tmp_path.glob(".tmp-*"))) == 1 and not hub.repositories
    atomic.sweep.cache_clear()  # as in another process
    run.push("me/one")
    assert not list(tmp_path.glob(".tmp-*"))
