"""Logging to Weights & Biases, through a stand-in for the library."""

import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import pytest
from train_stand_in import Tiny, train

from qkv.training.logging.wandb import RUN_ID, WandB, WandBoard
from qkv.training.settings import Training


class FakeWandb(ModuleType):
    """Remembers its runs, each with the arguments it was begun with, its rows, and whether it was finished."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.runs: list[FakeRun] = []
        self.refuses = False
        self.errors = SimpleNamespace(Error=type("Error", (Exception,), {}))

    def init(self, **options):
        if self.refuses:
            raise self.errors.Error("no API key configured")
        self.runs.append(FakeRun(options))
        return self.runs[-1]


class FakeRun:
    def __init__(self, options) -> None:
        self.options, self.rows, self.axes, self.finished = options, [], {}, False

    def define_metric(self, name, step_metric) -> None:
        self.axes[name] = step_metric

    def log(self, row) -> None:
        assert not self.finished
        self.rows.append(row)

    def finish(self) -> None:
        self.finished = True


@pytest.fixture
def wandb(monkeypatch) -> FakeWandb:
    fake = FakeWandb()
    find = importlib.util.find_spec
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name == "wandb" else find(name))
    return fake


def test_a_run_is_logged_to_wandb_as_to_its_own_file(tmp_path, wandb):
    outcome = train(tmp_path, wandb={"project": "p", "tags": ["a"], "mode": "offline"})
    (run,) = wandb.runs
    wanted = {"project": "p", "tags": ("a",), "mode": "offline", "resume": "allow", "dir": str(tmp_path)}
    assert run.options.items() >= wanted.items() and run.options["config"]["max_steps"] == 12
    assert [row["step"] for row in run.rows if "train/loss" in row] == [3, 6, 9, 12]
    assert [row["eval/loss"] for row in run.rows if "eval/loss" in row][-1] == outcome.metrics["loss"]
    assert run.axes == {"*": "step"} and run.finished


def test_a_resumed_run_continues_in_the_same_run_of_wandb_and_another_begins_its_own(tmp_path, wandb):
    train(tmp_path, wandb=True)
    train(tmp_path, Tiny(seed=1), wandb=True, resume=True, max_steps=15)
    train(tmp_path / "other", wandb=True)
    first, second, other = (run.options["id"] for run in wandb.runs)
    assert first == second != other
    assert (tmp_path / RUN_ID).read_text() == f"{first}\n"
    assert [row["step"] for row in wandb.runs[1].rows if "train/loss" in row] == [15]


def test_a_run_from_the_beginning_is_a_new_run_of_wandb(tmp_path, wandb):
    for _ in range(2):
        WandBoard(WandB(), tmp_path, {}).close()
    assert len({run.options["id"] for run in wandb.runs}) == 2


def test_wandb_that_can_not_start_is_a_clear_error(tmp_path, wandb):
    wandb.refuses = True
    with pytest.raises(
        ValueError, match=r"could not start a run: no API key configured; call `wandb login`, or set .* offline"
    ):
        WandBoard(WandB(), tmp_path, {})
    assert not (tmp_path / RUN_ID).exists()


@pytest.mark.parametrize(
    ("given", "read"), [(True, WandB()), (False, None), (None, None), ({"name": "x"}, WandB(name="x"))]
)
def test_the_setting_survives_json(given, read):
    training = Training.from_dict({"wandb": given})
    assert training.wandb == read and Training.from_dict(training.to_dict()) == training


def test_settings_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"wandb\.mode"):
        Training.from_dict({"wandb": {"mode": "sometimes"}})
    with pytest.raises(ValueError, match=r"wandb\.projekt: no such field"):
        Training.from_dict({"wandb": {"projekt": "p"}})
