"""Names on the Hub: which are, what is fetched, and what is said if it isn't there. The Hub is a server on this machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hub_here import hub_here
from hub_server import Hub, Repository

from qkv.io.directories.locate import locate
from qkv.io.hub import huggingface
from qkv.io.hub.huggingface import HubName
from qkv.runs.inference.run import load


@pytest.mark.parametrize("name", ["openai-community/gpt2", "google-bert/bert-base-uncased", "meta-llama/Llama-3.2-1B"])
def test_names_of_the_hub(name: str) -> None:
    assert huggingface.is_id(name)


@pytest.mark.parametrize("name", ["gpt2", "/tmp/x", "../x", "a/b/c", "./gpt2", "", "a b", "runs\\x", "a/..", "~/x"])
def test_paths_are_none(name: str) -> None:
    assert not huggingface.is_id(name)


def test_without_the_library_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"no directory 'nobody/nothing', .*pip install 'qkv\[hub\]'"):
        load("nobody/nothing")


def model(kind: str = "safetensors") -> dict[str, bytes]:
    weights = {"safetensors": "model.safetensors", "pickle": "pytorch_model.bin"}[kind]
    return {"config.json": b"{}", weights: b"1", "modeling_x.py": b"raise SystemExit", "tokenizer.json": b"{}"}


@pytest.mark.parametrize(
    ("name", "revision", "found"),
    [
        ("a/b", None, ("a/b", None)),
        ("a/b", "v1", ("a/b", "v1")),
        ("a/b@v1", None, ("a/b", "v1")),
        ("a/b@refs/pr/3", None, ("a/b", "refs/pr/3")),
        ("a/b@v1", "v1", ("a/b", "v1")),
        ("a/b@", None, None),
        ("b@v1", None, None),
        ("runs\\x@v1", None, None),
    ],
)
def test_names_with_revisions(name: str, revision: str | None, found: tuple[str, str | None] | None) -> None:
    assert huggingface.named(name, revision) == found


def test_what_is_fetched(hub: Hub) -> None:
    """Settings, tokenizer and weights; never code, never pickles unasked, modules of sentence-transformers below."""
    there = hub.repositories["a/b"] = Repository()
    modules = {
        "modules.json": b"[]",
        "1_Pooling/config.json": b"{}",
        "2_Dense/model.safetensors": b"1",
        "x/config.json": b"{}",
    }
    there.commit(
        "main", {**model(), **modules, "pytorch_model.bin": b"pickle", "1_Pooling/pytorch_model.bin": b"pickle"}
    )
    folder = huggingface.download(HubName("a/b"))
    got = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert got == {"config.json", "model.safetensors", "tokenizer.json", "modules.json", "1_Pooling/config.json"} | {
        "2_Dense/model.safetensors"
    }
    there.commit(
        "main", {"config.json": b"{}", "model.safetensors.index.json": b"{}", "model-00001-of-00001.safetensors": b"1"}
    )
    assert (huggingface.download(HubName("a/b")) / "model-00001-of-00001.safetensors").is_file()


def test_pickles_are_fetched_if_asked(hub: Hub) -> None:
    hub.repositories["a/b"] = Repository()
    hub.repositories["a/b"].commit("main", model("pickle"))
    with pytest.raises(ValueError, match=r"has its weights as a pickle \(pytorch_model.bin\), .*--allow-pickle"):
        huggingface.download(HubName("a/b"))
    assert (huggingface.download(HubName("a/b"), allow_pickle=True) / "pytorch_model.bin").is_file()


def test_what_the_hub_refuses_is_one_sentence(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repositories |= {"a/gated": Repository(gated=True), "a/private": Repository(private=True), "a/b": Repository()}
    for repository in hub.repositories.values():
        repository.commit("main", model())
    with pytest.raises(ValueError, match="a/b has no branch, tag or commit 'v9'"):
        load("a/b@v9")
    with pytest.raises(
        ValueError, match="no repository a/none, or it is private and the token on this machine may not"
    ):
        load("a/none")
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(ValueError, match=r"no repository a/private, or it is private and it needs a token \(`hf auth"):
        load("a/private")
    with pytest.raises(ValueError, match="a/gated is gated: ask for access on its page") as error:
        load("a/gated")
    assert "\n" not in str(error.value)
    monkeypatch.setenv("HF_TOKEN", "wrong")
    with pytest.raises(ValueError, match="the token on this machine is not valid"):
        load("a/private")


def test_the_cache_is_used_if_the_hub_cant_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hub_here(tmp_path) as here:
        here.repositories["a/b"] = Repository()
        commit = here.repositories["a/b"].commit("main", model())
        folder = huggingface.download(HubName("a/b"))
        here.broken = "."
        with pytest.warns(
            UserWarning, match=f"can't be reached from here, so a/b is what its cache holds, commit {commit[:10]}"
        ):
            assert huggingface.download(HubName("a/b")) == folder
        with pytest.raises(
            ValueError, match="'a/b@v2', the Hub can't be reached from here, and its cache has other revisions"
        ):
            huggingface.download(HubName("a/b", "v2"))
        with pytest.raises(ValueError, match="can't be reached from here, and its cache has no model of that name"):
            load("nobody/nothing")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        with pytest.warns(UserWarning, match="HF_HUB_OFFLINE keeps the Hub from being asked, so a/b is what"):
            huggingface.download(HubName("a/b"))
        (folder / "model.safetensors").unlink()
        with pytest.raises(ValueError, match=r"holds only a part of a/b, without model\.safetensors; load it once"):
            huggingface.download(HubName("a/b"))


def test_a_missing_run_is_not_asked_of_the_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="there is no run directory runs/x"):
        load("runs/x")
    assert not hub.asked


def test_a_directory_of_the_same_name_wins_and_it_is_said(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    hub.repositories["a/b"] = Repository()
    hub.repositories["a/b"].commit("main", model())
    huggingface.download(HubName("a/b"))
    Path("a/b").mkdir(parents=True)
    with pytest.warns(
        UserWarning, match="a/b is the directory on this machine; the repository of that name on the Hub is"
    ):
        assert locate("a/b") == Path("a/b")
    with pytest.raises(ValueError, match="'a/b' is a directory on this machine, and only repositories of the Hub have"):
        locate("a/b", "v1")
