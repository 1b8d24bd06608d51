"""Weights in several files: what each holds, what transformers makes of them, and what an earlier save leaves."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from qkv.cli import main
from qkv.io.directories.build import build
from qkv.io.directories.sharded import parsed, split
from qkv.io.families import preset
from qkv.io.hub.names import StoredPlace
from qkv.io.hub.transforms import SAME
from qkv.runs.inference.run import Run, load

SIZES = {"d_model": 32, "n_layers": 3, "n_heads": 2, "d_ff": 64, "vocab_size": 50, "max_positions": 16}
IDS = torch.tensor([[5, 3, 8, 2]])


@pytest.fixture(params=["gpt2", "llama"])
def run(request: pytest.FixtureRequest) -> Run:
    return Run(build(preset(request.param, **SIZES), seed=2).eval(), None, task="continue")


def weights(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if "safetensors" in path.name)


def test_shards_are_small_and_together_the_whole(run: Run, tmp_path: Path) -> None:
    whole = load_file(run.save(tmp_path / "whole", to="hub") / "model.safetensors")
    folder = run.save(tmp_path / "parts", to="hub", max_shard_size="20KB")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    files = sorted(set(index["weight_map"].values()))
    assert len(files) > 2 and weights(folder) == sorted([*files, "model.safetensors.index.json"])
    assert files[0] == f"model-00001-of-{len(files):05}.safetensors"
    found = {}
    for file in files:
        held = load_file(folder / file)
        assert set(held) == {name for name, place in index["weight_map"].items() if place == file}
        assert sum(t.nbytes for t in held.values()) <= 20_000 or len(held) == 1
        found |= held
    assert found.keys() == whole.keys() and all(torch.equal(found[name], whole[name]) for name in whole)
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in whole.values())
    assert torch.equal(load(folder, device="cpu").model(IDS), run.model(IDS))


STATUS = Path("/proc/self/status")


def resident(field: str) -> int:
    """Bytes of this process in memory: now (VmRSS), or at most since the last reset (VmHWM)."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) << 10


@pytest.mark.skipif(not STATUS.is_file(), reason="the peak of memory is read from Linux's /proc")
@pytest.mark.parametrize("family", ["gpt2", "llama"])  # whose matrices are transposed, and are as they are
def test_converting_never_holds_the_weights_twice(family: str, tmp_path: Path) -> None:
    spec = preset(family, d_model=320, n_layers=14, n_heads=4, d_ff=1280, vocab_size=500, max_positions=16)
    saved = Run(build(spec, seed=0), None, task="continue").save(tmp_path / "ours", to="qkv")
    size = (saved / "model.safetensors").stat().st_size
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    assert main(["convert", str(saved), str(tmp_path / "theirs"), "--to", "hub"]) == 0
    assert (resident("VmHWM") - before) / size < 1.2
    ours, theirs = (load(folder, device="cpu").model(IDS) for folder in (saved, tmp_path / "theirs"))
    assert torch.equal(ours, theirs)


def test_transformers_loads_them(run: Run, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="the shards are read by transformers, a test dependency")
    folder = run.save(tmp_path / "parts", to="hub", max_shard_size=20_000)
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    torch.testing.assert_close(model(IDS).logits, run.model(IDS), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sizes", [("20KB", "5GB"), ("5GB", "20KB"), ("20KB", "40KB")])
def test_what_an_earlier_save_left_is_gone(run: Run, tmp_path: Path, sizes: tuple[str, str]) -> None:
    other = Run(build(run.model.spec, seed=3).eval(), None, task="continue")
    other.save(tmp_path / "same", to="hub", max_shard_size=sizes[0])
    run.save(tmp_path / "same", to="hub", max_shard_size=sizes[1], overwrite=True)
    alone = run.save(tmp_path / "alone", to="hub", max_shard_size=sizes[1])
    assert weights(tmp_path / "same") == weights(alone)
    assert torch.equal(load(tmp_path / "same", device="cpu").model(IDS), run.model(IDS))


def test_from_the_command_line(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = run.save(tmp_path / "source", to="hub")
    assert main(["convert", str(source), str(tmp_path / "parts"), "--max-shard-size", "20KB"]) == 0
    assert len(weights(tmp_path / "parts")) > 2
    assert main(["convert", str(source), str(tmp_path / "no"), "--max-shard-size", "much"]) == 2
    assert "the size of a shard" in capsys.readouterr().err and not (tmp_path / "no").exists()


@given(st.lists(st.integers(1, 40), min_size=1), st.integers(1, 200))
def test_runs_keep_the_order_and_the_limit(lengths: list[int], limit: int) -> None:
    ours = {f"t{i}": torch.empty(n) for i, n in enumerate(lengths)}
    entries = [StoredPlace((name,), (name,), SAME, (tuple(t.shape),)) for name, t in ours.items()]
    shards = list(split(entries, ours, limit))
    assert [entry for shard in shards for entry in shard] == entries
    for shard in shards:
        assert len(shard) == 1 or sum(4 * entry.shapes[0][0] for entry in shard) <= limit


@pytest.mark.parametrize(
    "said, meant", [("5GB", 5 * 10**9), ("4.5 GiB", 9 << 29), (300, 300), ("1_000kb", 10**6), ("7", 7)]
)
def test_sizes_of_shards_are_read_in_bytes(said: int | str, meant: int) -> None:
    assert parsed(said) == meant


@pytest.mark.parametrize("said", ["", "GB", "-1", "0", "five GB", "5 TBs", "1e9"])
def test_what_is_no_size_of_a_shard_is_refused(said: str) -> None:
    with pytest.raises(ValueError, match="the size of a shard is a number of bytes such as 5GB or 500MiB"):
        parsed(said)
