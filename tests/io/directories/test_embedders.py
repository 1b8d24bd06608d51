"""Directories laid out as E5's and BGE-M3's: their vectors are those of sentence-transformers, here and after saving."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from encoder_folders import TEXTS, encoder

from qkv.cli import main
from qkv.runs.inference.run import load

PROMPTS = {"prompts": {"query": "query: ", "passage": "passage: "}, "similarity_fn_name": "cosine"}
E5 = {"pooling": "mean", "modules": ("Normalize",), "settings": PROMPTS}
LAYOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "BGE-M3": ("xlm-roberta", {"pooling": "cls", "modules": ("Normalize",)}),
    "multilingual E5": ("xlm-roberta", E5),
    "E5": ("bert", E5),
    "E5 with a default prompt": (
        "bert",
        {**E5, "settings": {**PROMPTS, "default_prompt_name": "passage", "truncate_dim": 24}},
    ),
    "Nomic": ("nomic", {"pooling": "mean", "settings": {"prompts": {"query": "search_query: "}}}),
}
pytestmark = pytest.mark.filterwarnings("ignore:.*MISSING.*pooler")


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_vectors_are_those_of_the_library(name: str, tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers").SentenceTransformer
    kind, layout = LAYOUTS[name]
    folder = encoder(kind, tmp_path / "hub", **layout)
    run, again = load(folder, "cpu"), load(load(folder, "cpu").save(tmp_path / "again", to="hub"), "cpu")
    assert run.path is not None and again.path is not None
    for where in (run, again):
        theirs = library(str(where.path), device="cpu")
        for prompt in (None, *layout.get("settings", {}).get("prompts", {})):
            expected = torch.from_numpy(theirs.encode(TEXTS, prompt_name=prompt))
            found = torch.from_numpy(where.embed_array(TEXTS, prompt=prompt))
            assert (found - expected).norm() <= 1e-5 * expected.norm(), prompt
        scores = torch.tensor(where.similarity(TEXTS[:2], TEXTS[2:4]))
        expected = theirs.similarity_pairwise(theirs.encode(TEXTS[:2]), theirs.encode(TEXTS[2:4]))
        torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_the_encoder_of_t5_with_a_dense_layer_is_that_of_the_library(tmp_path: Path) -> None:
    """As sentence-t5 and GTR are laid out."""
    library, transformers = pytest.importorskip("sentence_transformers"), pytest.importorskip("transformers")
    encoder("xlm-roberta", tmp_path / "hub")  # for its tokenizer
    torch.manual_seed(0)
    config = transformers.T5Config(vocab_size=120, d_model=16, d_kv=4, d_ff=32, num_layers=2, num_heads=4)
    transformers.T5EncoderModel(config).save_pretrained(tmp_path / "t5")
    for file in (tmp_path / "hub-words").iterdir():
        (tmp_path / "t5" / file.name).write_bytes(file.read_bytes())
    modules = pytest.importorskip("sentence_transformers.models")
    dense = modules.Dense(16, 12, bias=False, activation_function=torch.nn.Identity())
    parts = [modules.Transformer(str(tmp_path / "t5")), modules.Pooling(16, "mean"), dense, modules.Normalize()]
    theirs = library.SentenceTransformer(modules=parts, device="cpu")
    theirs.save(str(tmp_path / "embedder"))
    run = load(tmp_path / "embedder", "cpu")
    again = load(run.save(tmp_path / "again", to="hub"), "cpu")
    expected = torch.from_numpy(theirs.encode(TEXTS))
    for one in (run, again):
        torch.testing.assert_close(torch.from_numpy(one.embed_array(TEXTS)), expected, rtol=1e-5, atol=1e-5)


def test_the_command_takes_a_prompt_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = encoder("bert", tmp_path / "hub", **E5)
    assert main(["embed", str(folder), "hello", "--prompt", "query"]) == 0
    vector = torch.tensor(json.loads(capsys.readouterr().out))
    torch.testing.assert_close(vector, load(folder, "cpu").embed(["hello"], prompt="query")[0], rtol=1e-3, atol=1e-3)


def test_other_heads_are_told(tmp_path: Path) -> None:
    folder = encoder("bert", tmp_path / "hub", pooling="cls")
    for name in ("sparse_linear.pt", "colbert_linear.pt"):
        (folder / name).write_bytes(b"never read")
    run = load(folder, "cpu")
    with pytest.warns(UserWarning, match=r"has sparse_linear\.pt and colbert_linear\.pt, BGE-M3's .* copy them"):
        run.embed(TEXTS)
