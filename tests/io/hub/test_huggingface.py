"""Names on the Hub: which are, and what is said if the library or the repository isn't there. No network."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from qkv.io.hub import huggingface
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


def test_offline_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="an optional dependency")

    def refuse(*args: object, **kwargs: object) -> str:
        raise hub.errors.LocalEntryNotFoundError("outgoing traffic has been disabled.\nmore")

    monkeypatch.setattr(hub, "snapshot_download", refuse)
    with pytest.raises(ValueError, match="the Hub did not give it at revision 'v1': outgoing traffic") as error:
        load("nobody/nothing", revision="v1")
    assert "\n" not in str(error.value)


def test_what_is_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """Settings, tokenizer and weights; never code, never pickles unasked."""
    hub = pytest.importorskip("huggingface_hub", reason="an optional dependency")
    asked: list[list[str]] = []
    kinds = (
        "Pooling",
        "Dense",
        "LayerNorm",
        "Normalize",
    )  # modules of sentence-transformers, each in a folder of its own
    nested = [f"*_{kind}/{file}" for kind in kinds for file in ("config.json", "model.safetensors")]

    def fetch(name: str, *, revision: str | None, allow_patterns: list[str], ignore_patterns: list[str] | None) -> str:
        asked.append(allow_patterns)
        assert ignore_patterns == (None if allow_patterns == nested else ["*/*"])
        return str(tmp_path)

    monkeypatch.setattr(hub, "snapshot_download", fetch)
    assert huggingface.download("a/b") == tmp_path
    assert asked[1] == [*asked[0], "model.safetensors"]
    assert not any(pattern.endswith((".py", "*", ".bin")) for pattern in asked[1])
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    huggingface.download("a/b")
    assert asked[3][-1] == "model-*.safetensors"
    (tmp_path / "modules.json").write_text("[]")
    huggingface.download("a/b")
    assert asked[5] == nested


def test_a_missing_run_is_not_asked_of_the_hub_and_no_network_is_said_plainly(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="an optional dependency")
    monkeypatch.chdir(tmp_path)

    def refuse(*args: object, **kwargs: object) -> str:
        raise hub.errors.LocalEntryNotFoundError("An error happened. Got: ConnectError: [Errno -2] Name not known")

    monkeypatch.setattr(hub, "snapshot_download", refuse)
    with pytest.raises(ValueError, match="there is no run directory runs/x"):
        load("runs/x")
    with pytest.raises(ValueError, match="the Hub did not give it: it can't be reached from here") as error:
        load("nobody/nothing")
    assert "Got" not in str(error.value)
