"""Training that begins with a trained model: its weights, its tokenizer, adapters, and exact continuation."""

from __future__ import annotations

import io
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from hub_pairs import LIBRARY, PAIRS, save_hub_pair
from rich.console import Console
from run_tiny import TINY
from safetensors.torch import load_file, save_file

from qkv.data import Batching, Pairs, Reverse, stream
from qkv.runs.inference.run import load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.pretrained import check_base, keep_base, tokenizer_of
from qkv.runs.train.train import train

DATA = tuple(setting for setting in TINY if not setting.startswith("model."))
LORA = "adapter={kind: lora, rank: 2, alpha: 4}"


def recipe(base: Path, *settings: str) -> Recipe:
    return Recipe.load("reverse", [*DATA, f"model={base}", *settings])


def state(folder: Path) -> dict[str, torch.Tensor]:
    return load(folder, device="cpu").model.state_dict()


def test_weights_and_tokenizer_are_the_directorys(trained: Path, tmp_path: Path) -> None:
    train(recipe(trained, "training.optimizer.lr=1e-12"), tmp_path / "tuned", device="cpu")
    before, after = state(trained), state(tmp_path / "tuned")
    for name, tensor in before.items():
        torch.testing.assert_close(after[name], tensor, msg=name)
    assert (tmp_path / "tuned/tokenizer.json").read_text() == (trained / "tokenizer.json").read_text()


def test_it_learns_on(trained: Path, tmp_path: Path) -> None:
    train(recipe(trained), tmp_path / "tuned", device="cpu")
    before, after = state(trained), state(tmp_path / "tuned")
    assert any(not torch.equal(after[name], tensor) for name, tensor in before.items())


@pytest.mark.parametrize("adapter", [pytest.param((), marks=pytest.mark.slow), (LORA,)])
def test_resumed_is_uninterrupted(trained: Path, tmp_path: Path, adapter: tuple[str, ...]) -> None:
    settings = ("training.schedule=constant", *adapter)
    train(recipe(trained, *settings), tmp_path / "whole", device="cpu")
    train(recipe(trained, *settings, "training.max_steps=2"), tmp_path / "parts", device="cpu")
    train(recipe(trained, *settings), tmp_path / "parts", resume=True, device="cpu")
    whole, parts = state(tmp_path / "whole"), state(tmp_path / "parts")
    assert all(torch.equal(parts[name], tensor) for name, tensor in whole.items())


def test_an_adapter_moves_only_what_it_adapts(trained: Path, tmp_path: Path) -> None:
    train(recipe(trained, LORA), tmp_path / "tuned", device="cpu")
    before, after = state(trained), state(tmp_path / "tuned")
    moved = {name for name, tensor in before.items() if not torch.equal(after[name], tensor)}
    assert moved and all(".blocks." in name and name.endswith("weight") for name in moved)
    for name in moved:
        change = after[name] - before[name]
        assert torch.linalg.matrix_rank(change, rtol=1e-3) <= 2, name


def test_quantized_weights_need_an_adapter(trained: Path, tmp_path: Path) -> None:
    load(trained, device="cpu").quantize("int8").save(tmp_path / "small", "qkv")
    with pytest.raises(ValueError, match=r"are quantized and don't train; train an adapter over them"):
        train(recipe(tmp_path / "small"), tmp_path / "tuned", device="cpu")
    assert not (tmp_path / "tuned").exists()
    train(recipe(tmp_path / "small", LORA), tmp_path / "tuned", device="cpu")


def test_sizes_are_the_directorys(trained: Path) -> None:
    with pytest.raises(ValueError, match=r"d_model is given by the model in"):
        Recipe.load("reverse", [*DATA, f"model={{directory: {trained}, d_model: 32}}"])


def test_a_directory_without_a_model_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no model in"):
        train(recipe(tmp_path), tmp_path / "out", device="cpu")


# -- the base of an adapter ----------------------------------------------------------------------------------------------


def test_an_adapter_continues_over_its_own_base_only(trained: Path, tmp_path: Path) -> None:
    base, out = tmp_path / "base", tmp_path / "out"
    shutil.copytree(trained, base)
    settings = ("adapter={kind: lora, rank: 2}", "training.schedule=constant")
    train(recipe(base, *settings, "training.max_steps=2"), out, device="cpu")
    train(recipe(base, *settings, "training.max_steps=3"), out, resume=True, device="cpu")
    weights = load_file(base / "model.safetensors")
    save_file({name: 1.01 * tensor for name, tensor in weights.items()}, base / "model.safetensors")
    with pytest.raises(ValueError, match="not the one that the run in"):
        train(recipe(base, *settings, "training.max_steps=4"), out, resume=True, device="cpu")
    train(recipe(base, *settings, "training.max_steps=2"), out, overwrite=True, device="cpu")
    train(recipe(base, *settings, "training.max_steps=3"), out, resume=True, device="cpu")


def test_another_base_is_told_by_its_file(trained: Path, tmp_path: Path) -> None:
    base, out = tmp_path / "base", tmp_path / "out"
    shutil.copytree(trained, base)
    out.mkdir()
    check_base(out, str(base))  # nothing is known yet
    keep_base(out, str(base))
    check_base(out, str(base))
    weights = (base / "model.safetensors").read_bytes()
    (base / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    with pytest.raises(ValueError, match=r"not the one that the run in .* its model\.safetensors differs"):
        check_base(out, str(base))
    (base / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"its model\.safetensors is missing"):
        check_base(out, str(base))


# -- another library's encoder–decoders ----------------------------------------------------------------------------------


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", LIBRARY)
def test_pairs_have_the_loss_that_transformers_computes(name: str, tmp_path: Path, pairs: Path) -> None:
    model, tokenizer = save_hub_pair(name, tmp_path / "base")
    sources, targets = ([pair[side] for pair in PAIRS] for side in (0, 1))
    inputs = tokenizer(sources, padding=True, return_tensors="pt")
    labels = tokenizer(text_target=targets, padding=True, return_tensors="pt")
    ignored = labels["input_ids"].masked_fill(labels["attention_mask"] == 0, -100)
    with torch.no_grad():
        expected = model(inputs["input_ids"], attention_mask=inputs["attention_mask"], labels=ignored).loss
    own, source = (
        tokenizer_of(str(tmp_path / "base")),
        Pairs(path=str(pairs), validation_path=str(pairs), test_path=str(pairs)),
    )
    ours = load(tmp_path / "base", "cpu").model
    found = []
    for packing in (False, True):
        batching = Batching(tokens=64, max_length=16, context=16, packing=packing)
        sums = [0.0, 0.0]
        with stream(source, own, batching, seq2seq=True, epochs=1) as batches, torch.no_grad():
            for batch in batches:
                result = ours(**batch.inputs, labels=batch.labels)
                sums = [sums[0] + float(result.nll), sums[1] + float(batch.counts["loss"])]
        found.append(sums[0] / sums[1])
        assert sums[1] == int((ignored != -100).sum())
    assert found == pytest.approx([expected.item()] * 2, rel=1e-5)


def test_what_a_loaded_decoder_begins_with_stays_with_the_run(tmp_path: Path, pairs: Path) -> None:
    save_hub_pair("bart", tmp_path / "base")
    settings = [setting for setting in DATA if not setting.startswith("data.")]
    data = [
        f"data={{kind: pairs, path: {pairs}, validation_path: {pairs}, test_path: {pairs}}}",
        "batching.max_length=16",
    ]
    tuned = Recipe.load("reverse", [*settings, *data, f"model={tmp_path / 'base'}", "training.optimizer.lr=1e-12"])
    train(tuned, tmp_path / "tuned", device="cpu")
    base, run = load(tmp_path / "base", "cpu"), load(tmp_path / "tuned", "cpu")
    texts = [source for source, _ in PAIRS]
    assert run.start == base.start == 2
    assert [run.encode(text) for text in texts] == [base.encode(text) for text in texts]
    again = load(run.save(tmp_path / "saved", to="hub"), "cpu")
    assert json.loads((tmp_path / "saved/config.json").read_text())["decoder_start_token_id"] == 2
    assert again.generate(texts, max_new_tokens=5) == run.generate(texts, max_new_tokens=5)


def test_a_decoder_that_begins_with_nothing_known_is_told(tmp_path: Path) -> None:
    save_hub_pair("t5", tmp_path / "base")
    config = json.loads((tmp_path / "base/config.json").read_text())
    for change, said in (
        ({"decoder_start_token_id": 999}, "decoder_start_token_id is 999, which is not in its vocabulary"),
        ({"decoder_start_token_id": None}, "lacks decoder_start_token_id"),
    ):
        (tmp_path / "base/config.json").write_text(json.dumps(config | change))
        (tmp_path / "base/generation_config.json").unlink(missing_ok=True)
        with pytest.raises(ValueError, match=said):
            tokenizer_of(str(tmp_path / "base"))


class Marked(Reverse, kind="marked-reverse"):
    """Reversal whose sources may begin with a marker that no tokenizer has."""

    @property
    def special(self) -> tuple[str, ...]:
        return ("<new>",)


def test_an_adapter_says_which_tables_leave_new_tokens_untrained(trained: Path, tmp_path: Path) -> None:
    def said(out: str, *more: str) -> str:
        stream = io.StringIO()
        train(recipe(trained, LORA, *more), tmp_path / out, device="cpu", console=Console(file=stream, width=500))
        return stream.getvalue()

    assert "new token" not in said("old")
    note = said("new", "data.kind=marked-reverse")
    match = re.search(
        r"does not train the rows of 1 new token in .*; train these tables with adapter\.train=(\[.*\])", note
    )
    assert match, note
    advised = LORA.replace("}", f", train: {match[1]}}}")
    assert "new token" not in said("advised", "data.kind=marked-reverse", advised)
    table = match[1].strip("[]").split(",")[0]
    before, after = state(trained)[table], state(tmp_path / "advised")[table]
    assert len(after) == len(before) + 1 and not torch.equal(after[: len(before)], before)
