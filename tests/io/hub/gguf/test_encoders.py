"""Encoders in GGUF: names, numbers and keys are those of llama.cpp's own package, and a file is read as what was written."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from encoder_folders import KINDS, TEXTS, encoder
from fast_subset import thinned
from safetensors.torch import load_file

from qkv.cli import main
from qkv.io.directories.gguf_load import spec as spec_of
from qkv.io.hub.gguf import container
from qkv.nn.models.heads.sequence import SentenceVector
from qkv.runs.export.gguf import save
from qkv.runs.inference.run import Run, load

gguf = pytest.importorskip("gguf")
pytestmark = [
    pytest.mark.filterwarnings("ignore:GGUF holds encoders for embeddings"),
    pytest.mark.filterwarnings("ignore:.*MISSING.*pooler"),
]


def written(run: Run, path: Path, pooling: str | None = "mean", kind: str = "f32") -> Path:
    options: dict[str, Any] = {"task": run.task, "origin": run.origin, "pooling": pooling}
    return save(run.model, path, kind, tokenizer=run.tokenizer, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_and_keys_are_llama_cpps(kind: str, tmp_path: Path) -> None:
    """Each tensor of the directory stands under the name that the package `gguf` gives it."""
    folder = encoder(kind, tmp_path / "hub")
    reader = gguf.GGUFReader(written(load(folder, "cpu"), tmp_path / "m.gguf"))
    name = "nomic-bert" if kind == "nomic" else "bert"
    architecture = next(one for one, said in gguf.MODEL_ARCH_NAMES.items() if said == name)
    names = gguf.get_tensor_name_map(architecture, 2)
    found = {tensor.name: torch.from_numpy(tensor.data.copy()) for tensor in reader.tensors}
    theirs = {
        key: t for key, t in load_file(folder / "model.safetensors").items() if "pooler" not in key and "cls" not in key
    }
    assert len(found) == len(theirs)
    for key, tensor in theirs.items():
        cut = tensor[2:] if kind == "xlm-roberta" and "position" in key else tensor
        assert torch.equal(found[names.get_name(key, (".weight", ".bias"))], cut), key
    said = {key: field.contents() for key, field in reader.fields.items()}
    keys = gguf.Keys
    assert said[keys.LLM.POOLING_TYPE.format(arch=name)] == gguf.PoolingType.MEAN
    assert said[keys.Attention.CAUSAL.format(arch=name)] is False
    assert said[keys.LLM.CONTEXT_LENGTH.format(arch=name)] == 64
    assert said[keys.Tokenizer.TOKEN_TYPE_COUNT] == (1 if kind == "xlm-roberta" else 2)
    if kind != "xlm-roberta":
        assert said[keys.Tokenizer.MODEL] == "bert" and said[keys.Tokenizer.LIST][:3] == ["[PAD]", "[UNK]", "[CLS]"]
        assert "▁the" in said[keys.Tokenizer.LIST]
    assert said.get(keys.Rope.FREQ_BASE.format(arch=name)) == (1000.0 if kind == "nomic" else None)


@pytest.mark.parametrize(
    ("pooling", "pool"), thinned([("mean", "mean"), ("cls", "first"), ("last", "last"), (None, None)])
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_read_as_what_was_written(kind: str, pooling: Any, pool: Any, tmp_path: Path) -> None:
    run = load(encoder(kind, tmp_path / "hub"), "cpu")
    path = written(run, tmp_path / "m.gguf", pooling)
    again = load(path, "cpu")
    assert (
        again.model.spec.head == (None if pool is None else SentenceVector(pool=pool))
        and spec_of(path) == again.model.spec
    )
    assert [again.encode(text) for text in TEXTS] == [run.encode(text) for text in TEXTS]
    ids = torch.tensor([run.encode(TEXTS[0])])
    assert torch.equal(again.model.hidden(ids), run.model.hidden(ids))
    assert (again.embed_array(TEXTS) == run.embed_array(TEXTS, pooling=pooling or "mean")).all()
    twice = load(again.save(tmp_path / "again", to="hub"), "cpu")
    assert (twice.embed_array(TEXTS) == again.embed_array(TEXTS)).all()
    assert [twice.encode(text) for text in TEXTS] == [run.encode(text) for text in TEXTS]
    smaller = load(written(run, tmp_path / "small.gguf", pooling, "q8_0"), "cpu").embed_array(TEXTS)
    assert abs(smaller - again.embed_array(TEXTS)).max() < 0.3


def test_convert_takes_the_pooling_of_sentence_transformers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = encoder("bert", tmp_path / "hub", pooling="cls", modules=("Normalize",))
    assert main(["convert", str(folder), str(tmp_path / "m.gguf"), "--to", "gguf"]) == 0
    run = load(tmp_path / "m.gguf", "cpu")
    assert run.model.spec.head == SentenceVector(pool="first")
    whole, cut = load(folder, "cpu").embed_array(TEXTS), run.embed_array(TEXTS, normalize=True)
    assert abs(whole - cut).max() < 1e-6
    capsys.readouterr()
    other = encoder("bert", tmp_path / "max", pooling="max")
    assert main(["convert", str(other), str(tmp_path / "x.gguf"), "--to", "gguf"]) == 2
    assert "llama.cpp pools by mean, first, last, and this model by max" in capsys.readouterr().err


def test_a_head_is_left_out_with_a_word(tmp_path: Path) -> None:
    run = load(encoder("bert", tmp_path / "hub", head=True), "cpu")
    with pytest.warns(UserWarning, match="GGUF holds encoders for embeddings, so .* tensors of heads, such as head"):
        path = written(run, tmp_path / "m.gguf")
    ids = torch.tensor([run.encode(TEXTS[0])])
    assert torch.equal(load(path, "cpu").model.hidden(ids), run.model.hidden(ids))


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"bert.pooling_type": 7}, "pooling_type is 7, which is not read here; it is 0 for none, or 1 to 3"),
        ({"bert.attention.causal": True}, "attention.causal must be false"),
        ({"bert.attention.causal": None}, "its metadata lacks 'attention.causal'"),
        ({"bert.attention.layer_norm_epsilon": None}, "its metadata lacks 'attention.layer_norm_epsilon'"),
        ({"tokenizer.ggml.normalizer.lowercase": 3}, "normalizer.lowercase must be true or false, not 3"),
        ({"tokenizer.ggml.tokens": ["▁a"] * 80}, "has 'a' twice"),
    ],
    ids=str,
)
def test_a_damaged_file_is_one_sentence(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    from qkv.io.hub.gguf.writer import Written, write

    run = load(encoder("bert", tmp_path / "hub"), "cpu")
    file = container.read(written(run, tmp_path / "m.gguf"))
    metadata = {key: value for key, value in {**file.metadata, **changes}.items() if value is not None}
    if "tokenizer.ggml.tokens" in changes:
        metadata["tokenizer.ggml.tokens"] = ["▁a"] * len(file.metadata["tokenizer.ggml.tokens"])
    tensors = [
        Written(name, one.type, one.shape, lambda name=name: torch.from_numpy(file.bytes_of(name)))  # type: ignore[misc]
        for name, one in file.stored.items()
    ]
    write(tmp_path / "changed.gguf", metadata, tensors)
    with pytest.raises(ValueError) as error, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        load(tmp_path / "changed.gguf", "cpu")
    assert said in str(error.value) and "changed.gguf" in str(error.value)
