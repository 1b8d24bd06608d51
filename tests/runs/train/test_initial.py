"""The model of a training at its start: what ranks that divide it have is what one has, and no rank has it whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fast_subset import fast
from resident import MEASURED, forget_peak, peak
from rich.console import Console
from run_tiny import TINY
from safetensors.torch import load_file
from torch import Tensor

import qkv
from qkv.core.ranks import ALONE, Ranks
from qkv.io.directories.adapters import save_merged
from qkv.io.families import preset
from qkv.runs.recipes.model_choice import ModelChoice
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.initial import initial_model
from qkv.runs.train.prepare import read
from qkv.runs.train.pretrained import model_of, outline_of
from qkv.training.optimizers import SGD
from qkv.training.parallel.scale import Scale
from qkv.training.parallel.team import Team

pytestmark = pytest.mark.xdist_group("ranks")
LORA = "adapter={kind: lora, rank: 2, alpha: 4, train: '*.norm.*'}"
DATA = tuple(setting for setting in TINY if not setting.startswith("model."))
ZERO, TENSOR, PIPELINE = {"shard": 2}, {"tensor": 2}, {"pipeline": 2}
STARTS = {
    "a run, zero 3": ("run", ZERO, ()),
    "a run, pipeline": ("run", PIPELINE, ()),
    "a run with an adapter, zero 3": ("run", ZERO, (LORA,)),
    "a run with an adapter, tensor": ("run", TENSOR, (LORA,)),
    "a model of the Hub with an adapter, pipeline": ("hub", PIPELINE, (LORA,)),
    "a model of the Hub, zero 3": ("hub", ZERO, ()),
    "a new model with an adapter, zero 3": ("new", ZERO, (LORA,)),
    "a new model with word vectors, tensor": ("vectors", TENSOR, ()),
    "a new model with word vectors, pipeline": ("vectors", PIPELINE, ()),
    "a changed model, zero 3": ("run", ZERO, ("model.replace={decoder.position: alibi}",)),
}


def started(ranks: Ranks, scale: dict[str, Any], settings: list[str], out: str) -> tuple[bool, dict[str, Tensor]]:
    """Whether this rank gets a model without memory, and its parameters after it has been divided, and gathered again."""
    value = Scale.from_dict(scale)
    team = Team(ranks, torch.device("cpu"), value, value.sizes(ranks.size))
    console = Console(quiet=True)
    prepared = read(Recipe.load("reverse", settings), Path(out), team, False, console)
    model, values, _ = initial_model(prepared, console)
    strategy = team.distribute(model, values)
    strategy.optimizer(SGD(momentum=0.0))
    strategy.gather()
    parameters = {name: p.detach().clone() for name, p in model.named_parameters()}
    if prepared.recipe.adapter is not None:
        save_merged(model, merged_on(ranks, out))
    return values is not None, parameters


def merged_on(ranks: Ranks, out: str) -> Path:
    """The file with the merged weights that a rank writes."""
    return Path(f"{out}-{ranks.rank}-of-{ranks.size}.safetensors")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, trained: Path) -> Path:
    """The directory of a model of the Hub, with the tokenizer of a run."""
    folder = tmp_path_factory.mktemp("hub") / "gpt2"
    run = qkv.load(trained, device="cpu")
    spec = preset("gpt2", vocab_size=run.model.vocab_size, d_model=16, n_heads=2, n_layers=2, max_positions=64)
    qkv.build(spec, seed=7).save(folder, to="hub")
    for file in trained.glob("tokenizer*"):
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Word vectors for some letters."""
    path = tmp_path_factory.mktemp("vectors") / "vectors.txt"
    rows = torch.randn(10, 16, generator=torch.Generator().manual_seed(0))
    lines = [
        f"{letter} {' '.join(f'{x:.4f}' for x in row)}\n"
        for letter, row in zip("abcdefghij", rows.tolist(), strict=True)
    ]
    path.write_text("".join(lines))
    return path


@pytest.mark.parametrize(
    "start", fast(STARTS, "a run with an adapter, zero 3", "a model of the Hub with an adapter, pipeline")
)
def test_a_divided_model_starts_with_the_values_of_a_whole_one(
    two: Any, trained: Path, hub: Path, vectors: Path, tmp_path: Path, start: str
) -> None:
    kind, scale, settings = STARTS[start]
    origin = {
        "run": [*DATA, f"model={trained}"],
        "hub": [*DATA, f"model={hub}", "objective=next-token"],
        "new": list(TINY),
        "vectors": [*TINY, f"vectors.path={vectors}"],
    }[kind]
    (outlined, parameters), _ = two.run(started, scale, [*origin, *settings], str(tmp_path / "out"))
    (_, whole) = started(ALONE, {}, [*origin, *settings], str(tmp_path / "out"))
    assert outlined == (start != "a changed model, zero 3")
    for name, parameter in whole.items():
        assert torch.equal(parameters[name], parameter), name
    if LORA in settings:
        merged = load_file(merged_on(ALONE, str(tmp_path / "out")))
        divided = load_file(tmp_path / "out-0-of-2.safetensors")
        assert divided.keys() == merged.keys() and all(torch.equal(divided[name], merged[name]) for name in merged)


@pytest.mark.parametrize("kind", ["run", "hub"])
def test_a_larger_vocabulary_has_the_same_values(trained: Path, hub: Path, kind: str) -> None:
    choice = ModelChoice(directory=str(trained if kind == "run" else hub))
    size = qkv.load(trained, device="cpu").model.vocab_size + 3
    outlined = outline_of(choice, size, torch.device("cpu"))
    assert outlined is not None
    (shell, values), whole = outlined, model_of(choice, size, torch.device("cpu")).model
    assert shell.spec == whole.spec and all(p.is_meta for p in shell.parameters())
    for path, parameter in whole.named_parameters(remove_duplicate=False):
        assert torch.equal(values.value(path), parameter), path
    for path, buffer in whole.named_buffers():
        assert torch.equal(shell.get_buffer(path), buffer), path


def bytes_of_a_start(ranks: Ranks, scale: dict[str, Any], small: str, large: str) -> tuple[int, int, int, int]:
    """Load a model and divide it. Returns the bytes that were added at most, and the bytes of this rank's part, of the whole
    model and of its largest parameter."""
    value = Scale.from_dict(scale)
    team = Team(ranks, torch.device("cpu"), value, value.sizes(ranks.size))

    def start(directory: str) -> tuple[Any, list[int]]:
        outlined = outline_of(ModelChoice(directory=directory), 0, team.device)
        assert outlined is not None
        parameters = [4 * p.numel() for p in outlined[0].parameters()]
        team.distribute(*outlined).optimizer(SGD(momentum=0.0))
        return outlined[0], parameters

    start(small)  # loads what is loaded at first use
    forget_peak()
    before = peak()
    model, parameters = start(large)
    added = peak() - before
    own = 4 * sum(getattr(p, "_local_tensor", p).numel() for p in model.parameters())
    return added, own, sum(parameters), max(parameters)


@pytest.mark.parametrize("to", ["hub", pytest.param("qkv", marks=pytest.mark.slow)])
@pytest.mark.parametrize("scale", fast([ZERO, TENSOR, PIPELINE], PIPELINE), ids=str)
def test_a_rank_loads_its_part_and_one_parameter(two: Any, tmp_path: Path, scale: dict[str, Any], to: Any) -> None:
    if not MEASURED:
        pytest.skip("the peak of a process can't be read here")
    sizes = {"small": (2, 32, 100), "large": (16, 512, 2048)}
    for name, (n_layers, d_model, vocab_size) in sizes.items():
        spec = preset("gpt2", n_layers=n_layers, d_model=d_model, n_heads=2, vocab_size=vocab_size)
        qkv.build(spec, seed=1).save(tmp_path / name, to=to)
    for added, own, whole, largest in two.run(
        bytes_of_a_start, scale, str(tmp_path / "small"), str(tmp_path / "large")
    ):
        assert added <= own + 2 * largest + 50e6 < whole
