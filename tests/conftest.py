"""What every test shares: one thread, a fresh seed, helpers on the path, two small runs, each trained once, and ranks."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import settings
from hypothesis.internal.conjecture import providers

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / name) for name in ("helpers", "contracts", "io/families", "runs/inference")]
sys.path.insert(0, str(HERE.parent / "docs" / "examples"))
import run_tiny  # noqa: E402
import summary  # noqa: E402
from rank_pool import RankPool  # noqa: E402

if TYPE_CHECKING:
    from hub_server import Hub
    from short_runs import Train

    from qkv.runs.inference.run import Run

torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it runs in the background
settings.register_profile("all", deadline=None, derandomize=True, database=None)
settings.register_profile("fast", settings.get_profile("all"), max_examples=25)  # if a test gives no number
providers._get_local_constants = providers.Constants  # it parses every module for constants to draw, for seconds
POOLS: list[RankPool] = []
on_cpu = not torch.cuda.is_available()
os.fsync = lambda file: None  # what tests write need not outlast the machine, and each call waits for the disk
gc.disable()  # until the tests are collected: what is made until then stays


def pytest_configure(config: pytest.Config) -> None:
    """Under xdist the controller meets no folder's own conftest, and it is the one that prints the contracts' summary."""
    settings.load_profile("fast" if "not slow" in config.option.markexpr else "all")
    if not config.pluginmanager.has_plugin(summary.NAME):
        config.pluginmanager.register(summary, summary.NAME)
    _use_empty_cache(config)


def _use_empty_cache(config: pytest.Config) -> None:
    """Use an empty cache folder that is deleted at the end, so tests don't depend on earlier ones and leave nothing in the
    user's. Its compiled kernels are the user's, since compiling takes long."""
    from qkv.data.files import cache
    from qkv.nn.kernels.native.compiler import cache_refused

    kernels = (cache.folder() / "kernels").absolute()
    folder = tempfile.TemporaryDirectory(prefix="qkv-tests-")
    config.add_cleanup(folder.cleanup)
    if cache_refused() is None and kernels.is_dir():
        with contextlib.suppress(OSError):  # without links, as on Windows, kernels are compiled for these tests
            Path(folder.name, "kernels").symlink_to(kernels.resolve(), target_is_directory=True)
    os.environ["QKV_CACHE"] = folder.name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of ranks come first, together: one worker takes them all, so their processes start once."""
    items.sort(key=lambda item: not _of_ranks(item))


def _of_ranks(item: pytest.Item) -> bool:
    marked = item.get_closest_marker("xdist_group") is not None
    return marked or not {"two", "four", "eight", "sixteen"}.isdisjoint(getattr(item, "fixturenames", ()))


def pytest_collection_finish() -> None:
    """Garbage collections leave the million objects of modules and tests alone."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


@pytest.fixture(autouse=True)
def seeded() -> None:
    if on_cpu:  # without a stack trace for a GPU that may be met later, which takes a millisecond
        torch.default_generator.manual_seed(0)
    else:
        torch.manual_seed(0)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder–decoder's run. Tests that change it copy it first."""
    return run_tiny.translator(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def trained_lm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model's run. Tests that change it copy it first."""
    return run_tiny.language_model(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> Train:
    """A run of a recipe, trained for a moment; the same one for the same settings."""
    made: dict[tuple[str, ...], Run] = {}

    def run(name: str, *settings: str) -> Run:
        from short_runs import SHORT

        from qkv.runs.inference.run import load
        from qkv.runs.recipes.recipe import Recipe
        from qkv.runs.train.train import train

        if (name, *settings) not in made:
            out = tmp_path_factory.mktemp(name) / "run"
            train(Recipe.load(name, [*SHORT, *settings]), out, device="cpu")
            made[name, *settings] = load(out, device="cpu")
        return made[name, *settings]

    return run


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """The Hugging Face Hub on this machine, empty, for this process."""
    from hub_here import hub_here

    with hub_here(tmp_path) as here:
        yield here


@pytest.fixture
def heeds_hangup() -> Iterator[None]:
    """SIGHUP is not ignored, as it is if the tests are started by nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(scope="session")
def two() -> RankPool:
    """Two processes that form a group. Tests with them are marked `xdist_group("ranks")`, so there is one such pool."""
    POOLS.append(RankPool(2))
    return POOLS[-1]


@pytest.fixture(scope="session")
def four() -> RankPool:
    POOLS.append(RankPool(4))
    return POOLS[-1]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """The ranks end after the last test of ranks: while they wait, their threads wake a hundred times a second."""
    if nextitem is None or not _of_ranks(nextitem):
        for pool in POOLS:
            pool.close()


@pytest.fixture(scope="module")
def eight() -> Iterator[RankPool]:
    pool = RankPool(8)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def sixteen() -> Iterator[RankPool]:
    pool = RankPool(16)
    yield pool
    pool.close()


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.slow)], ids=["eager", "compiled"])
def compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether `qkv.testing.check` compiles the model too, which takes most of its time: in the slow tests only."""
    if not request.param:
        monkeypatch.setattr("qkv.testing.models.ModelChecks.compiled", lambda self: None)
    return bool(request.param)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A separate directory, a wide terminal, and no tracebacks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.delenv("QKV_DEBUG", raising=False)
