from __future__ import annotations

import importlib.util
import io
import itertools
import json
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from run_tiny import CHAT, LANGUAGE_MODEL, TINY, write_chats, write_text

from qkv.data.source import Source, Split, Table
from qkv.data.tables import StreamTable
from qkv.io.directories import layout as directory
from qkv.io.directories.layout import RunState
from qkv.runs.inference.run import load
from qkv.runs.recipes.packaged import packaged
from qkv.runs.recipes.recipe import ABLATE, COMPARE, Recipe, tree
from qkv.runs.train import memory_check
from qkv.runs.train.train import train
from qkv.training.logging.metrics_file import read_metrics
from qkv.training.mixed_precision import LEAST_WIDTHS
from qkv.training.step import Stepper


def settings_for(name: str, folder: Path) -> list[str]:
    """What makes a packaged recipe small, and its data if it needs some."""
    if name in ("lm", "stdlib", "gpt", "scaling"):
        data = [f"data.path={write_text(folder)}", "data.documents=line"] if name == "lm" else ["data.packages=[json]"]
        held = [] if name == "lm" else ["data.validation=0.3", "data.test=0.3"]
        return [*LANGUAGE_MODEL, *data, *held]
    if name == "contextual":
        return list(LANGUAGE_MODEL)
    if name == "chat":
        return [*CHAT, f"data.path={write_chats(folder)}"]
    if name == "nanogpt":
        text = [setting for setting in LANGUAGE_MODEL if not setting.startswith("tokenizer.")]
        return [*text, "tokenizer.bos=null", f"data.path={write_text(folder)}"]
    small = [text for text in TINY if not text.startswith("data.")]
    if name == "translate":
        pairs = folder / "pairs.tsv"
        pairs.write_text("".join(f"{n} cats\t{n} Katzen\n" for n in range(200)), encoding="utf-8")
        return [
            *small,
            f"data.path={pairs}",
            "tokenizer.vocab_size=300",
            "batching.max_length=32",
            "generation.num_beams=2",
        ]
    if name == "summarize":
        return [
            *small,
            "data.train=200",
            "data.validation=10",
            "data.test=10",
            "tokenizer.vocab_size=300",
            "batching.max_length=64",
            "batching.tokens=512",
        ]
    if name == "localise":
        data = ["data.languages=[de]", "data.domains=[number]", "data.train=300", "data.test=10", "data.validation=10"]
        return [*small, *data, "tokenizer.vocab_size=200", "batching.max_length=64", "batching.tokens=512"]
    return list(TINY)


# Comparisons and ablations, variant by variant: test_shipped.py in compare/ and ablate/. What has a task: beside the task's
# own tests.
SINGLE = sorted(name for name in packaged() if not {COMPARE, ABLATE, "task"} & tree(name).keys())


@pytest.mark.parametrize("name", SINGLE)
def test_every_packaged_recipe_trains_from_end_to_end(name: str, tmp_path: Path) -> None:
    recipe = Recipe.load(name, settings_for(name, tmp_path))
    done = train(recipe, tmp_path / "run", device="cpu")
    assert done.evaluation is not None and done.evaluation.metrics["loss"] > 0
    files = {path.name for path in (tmp_path / "run").iterdir()}
    wanted = {"config.json", "model.safetensors", "tokenizer.json", "generation_config.json", "recipe.yaml"}
    assert wanted | {"metrics.jsonl", "checkpoints", "report.html", "evaluation.json"} <= files
    assert not [name for name in files if name.startswith(".")]
    assert RunState.of(tmp_path / "run") is RunState.FINISHED
    run = load(tmp_path / "run", device="cpu")
    assert isinstance(run.generate(["1 cats"])[0], str)
    assert run.recipe is not None and run.recipe.model.sizes["vocab_size"] == run.tokenizer.vocab_size


def test_a_run_in_the_way_is_never_touched_unasked(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    before = snapshot(folder)
    recipe = Recipe.load("reverse", TINY)
    with pytest.raises(ValueError, match="a finished run; continue it with --resume, replace it with --overwrite"):
        train(recipe, folder)
    with pytest.raises(ValueError, match=r"model\.d_model is 16 there and 32 here"):
        train(Recipe.load("reverse", [*TINY, "model.d_model=32"]), folder, resume=True)
    with pytest.raises(ValueError, match=r"data\.kind is 'reverse' there and 'sort' here"):
        train(Recipe.load("reverse", [*TINY, "data.kind=sort"]), folder, resume=True)
    assert snapshot(folder) == before
    (folder / directory.EVALUATION).unlink()
    with pytest.raises(ValueError, match="an unfinished run"):
        train(recipe, folder)
    foreign = tmp_path / "home"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="is not a run of qkv"):
        train(recipe, foreign, overwrite=True)
    assert (foreign / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["training.precision=fp16", "model.max_positions=4"], "longer than the model's context of 4"),
        (["batching.max_length=2"], "no example of the train split is left"),
        (["batching.tokens=8"], "can't hold"),
        (["tokenizer.eos=null"], "end-of-sequence"),
        (["model.vocab_size=5"], "the tokenizer has"),
        (
            ["training.metric=bloo"],
            r"training\.metric is 'bloo', but what is measured is loss, perplexity, exact_match",
        ),
        (["training.optimizer.freeze=[nowhere]"], "nowhere"),
        (["training.tensorboard=true"], "tensorboard is asked for but not installed"),
        (["training.wandb=true"], "wandb is asked for but not installed"),
        (["batching.workers=500"], "batching.workers is 500"),
        (["tokenizer={kind: bpe, vocab_size: 1000000000}"], "tokenizer.vocab_size: .* less than or equal to 10000000"),
    ],
)
def test_what_does_not_fit_together_is_told_before_anything_is_written(
    settings: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    absent = ("tensorboard", "wandb")
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name in absent else find(name, *rest))
    with pytest.raises(ValueError, match=said):
        train(Recipe.load("reverse", [*TINY, *settings]), tmp_path / "run", device="cpu", console=Console())
    assert not (tmp_path / "run").exists() and "run in" not in capsys.readouterr().out


def test_a_run_that_ends_before_its_first_step_is_not_in_the_way_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any, **__: Any) -> None:
        raise ValueError("wandb could not start a run")

    with monkeypatch.context() as patch, pytest.raises(ValueError, match="could not start"):
        patch.setattr("qkv.training.run_log.RunLog.begin", refuses)
        train(Recipe.load("reverse", TINY), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_changed_setting_that_prevents_resuming_leaves_the_run_as_it_was(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    before = snapshot(folder)
    with pytest.raises(ValueError, match="nowhere"):
        train(Recipe.load(folder, ["training.optimizer.freeze=[nowhere]"]), folder, resume=True, device="cpu")
    assert snapshot(folder) == before


def test_a_terminal_that_is_closed_does_not_end_a_run(tmp_path: Path) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    done = train(Recipe.load("reverse", TINY), tmp_path / "run", device="cpu", console=Console(file=Closed()))
    assert done.evaluation is not None and RunState.of(tmp_path / "run") is RunState.FINISHED


def test_data_that_changed_beneath_a_run_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = Recipe.load("translate", settings_for("translate", tmp_path))
    train(recipe, tmp_path / "run", device="cpu")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text(pairs.read_text().replace("Katzen", "Hunde"), encoding="utf-8")
    train(recipe, tmp_path / "run", resume=True, device="cpu", console=Console(width=200))
    assert "not as before: data changed" in capsys.readouterr().out


def test_a_batch_that_can_not_fit_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_check, "available", lambda device: 100 << 20)
    with pytest.raises(ValueError, match=r"batches of 256 tokens would take about 0\.1 GiB, .* 0\.1 GiB free"):
        monkeypatch.setattr("qkv.nn.cost.memory._libraries", lambda plan: 120 << 20)
        train(Recipe.load("reverse", TINY), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_compiling_without_a_compiler_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qkv.training.compiling._has_cpp", lambda: False)
    with pytest.raises(ValueError, match=r"training\.compile needs a C\+\+ compiler"):
        train(Recipe.load("reverse", [*TINY, "training.compile=true"]), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_what_was_chosen_is_in_the_runs_recipe_and_stays_so(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = Recipe.load(trained).training
    assert (saved.precision, saved.compile) == ("fp32", False)
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    monkeypatch.setitem(LEAST_WIDTHS, "amx_bf16", 1)  # here auto would choose otherwise
    monkeypatch.setattr("qkv.training.mixed_precision.bf16_instructions", lambda device: "amx_bf16")
    train(Recipe.load("reverse", [*TINY, "training.max_steps=5"]), folder, resume=True, device="cpu")
    assert Recipe.load(folder).training.precision == "fp32"
    with pytest.raises(ValueError, match=r"training\.precision is 'fp32' there and 'bf16' here"):
        train(Recipe.load("reverse", [*TINY, "training.precision=bf16"]), folder, resume=True, device="cpu")
    train(Recipe.load("reverse", TINY), tmp_path / "new", device="cpu")
    assert Recipe.load(tmp_path / "new").training.precision == "bf16"


def changed(*settings: str) -> Recipe:
    return Recipe.load("reverse", [*TINY, "training.max_steps=2", *settings])


def test_overwrite_replaces_the_run(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    train(changed("seed=5"), folder, overwrite=True, device="cpu")
    assert [path.name for path in sorted((folder / "checkpoints").glob("step-*"))] == ["step-00000002"]
    assert Recipe.load(folder).seed == 5 and list(tmp_path.iterdir()) == [folder]


def test_overwrite_refuses_a_run_beside_other_files(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"notes.txt is not part of a run, so .* is not replaced; move that away"):
        train(changed(), folder, overwrite=True, device="cpu")
    assert (folder / "model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()


def test_overwrite_keeps_the_old_run_until_the_new_one_is_finished(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, old = tmp_path / "run", tmp_path / ".old-run"
    shutil.copytree(trained, folder)
    for seed in ("seed=5", "seed=6"):
        interrupt_after(1, monkeypatch)
        assert train(changed(seed), folder, overwrite=True, device="cpu").outcome.interrupted
        monkeypatch.undo()
        assert (old / "model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()
        assert (RunState.of(folder), RunState.of(old)) == (RunState.STARTED, RunState.FINISHED)
    train(changed("seed=6"), folder, resume=True, device="cpu")
    assert RunState.of(folder) is RunState.FINISHED and list(tmp_path.iterdir()) == [folder]


def test_a_training_that_fails_before_its_first_step_puts_the_old_run_back(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr("qkv.training.loop.Trainer.step", fails)
    with pytest.raises(RuntimeError):
        train(changed(), folder, overwrite=True, device="cpu")
    assert RunState.of(folder) is RunState.FINISHED and list(tmp_path.iterdir()) == [folder]


def test_an_interrupted_run_continues_to_the_same_weights(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = Recipe.load("reverse", TINY)
    folder = tmp_path / "run"
    interrupt_after(3, monkeypatch)
    stopped = train(recipe, folder, device="cpu")
    assert stopped.outcome.interrupted and stopped.evaluation is None
    assert RunState.of(folder) is RunState.STARTED
    monkeypatch.undo()
    done = train(recipe, folder, resume=True, device="cpu")
    assert done.evaluation is not None and RunState.of(folder) is RunState.FINISHED
    uninterrupted = json.loads((trained / directory.EVALUATION).read_text())
    assert done.evaluation.metrics == uninterrupted["metrics"]
    assert (folder / "model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()


def test_resume_where_nothing_is_yet_begins_and_a_finished_run_can_train_on(tmp_path: Path) -> None:
    (tmp_path / ".tmp-recipe.yaml").write_text("what a killed process left")
    train(Recipe.load("reverse", TINY), tmp_path, resume=True, device="cpu")
    longer = Recipe.load("reverse", [*TINY, "training.max_steps=6"])
    done = train(longer, tmp_path, resume=True, device="cpu")
    assert done.outcome.state.step == 6
    assert Recipe.load(tmp_path).training.max_steps == 6


def test_a_diverging_run_says_so_and_keeps_its_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from qkv.training.objective import SequenceToSequence

    call = SequenceToSequence.__call__
    calls = iter(range(1000))

    def spoiled(self: Any, model: Any, batch: Any) -> Any:
        terms = call(self, model, batch)
        if model.training and next(calls) >= 3:
            terms = {name: type(term)(term.sum * float("nan"), term.count) for name, term in terms.items()}
        return terms

    monkeypatch.setattr(SequenceToSequence, "__call__", spoiled)
    recipe = Recipe.load("reverse", [*TINY, "training.max_steps=20", "training.max_bad_steps=3"])
    with pytest.raises(ValueError, match=r"diverged.*step-0000000"):
        train(recipe, tmp_path / "run", device="cpu")
    assert list((tmp_path / "run" / "checkpoints").glob("step-*"))


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def interrupt_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of a step."""
    take = Stepper.take
    calls = iter(range(1000))

    def interrupted(self: Any, *args: Any, **options: Any) -> Any:
        result = take(self, *args, **options)
        if next(calls) == steps - 1:
            signal.raise_signal(signal.SIGINT)
        return result

    monkeypatch.setattr(Stepper, "take", interrupted)


def test_a_run_of_two_epochs_reads_every_example_twice(tmp_path: Path) -> None:
    settings = [
        *(text for text in TINY if "max_steps" not in text),
        "training.max_epochs=2",
        "training.eval_every=epoch",
    ]
    done = train(Recipe.load("reverse", settings), tmp_path / "run", device="cpu")
    assert (done.outcome.ending, done.outcome.state.epochs) == ("max_epochs", 2.0)
    evaluated = [line for line in read_metrics(tmp_path / "run" / "metrics.jsonl") if line["type"] == "eval"]
    assert len(evaluated) == 2


def test_a_training_begins_by_saying_what_it_does_and_shows_its_first_example(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"{n} cats\t{n} Katzen\n" for n in range(1, 200)), encoding="utf-8")
    out = io.StringIO()
    settings = [text for text in settings_for("translate", tmp_path) if "data.path" not in text]
    recipe = Recipe.load("translate", [*settings, f"data.path={tmp_path / 'pairs.tsv'}"])
    train(recipe, tmp_path / "run", device="cpu", console=Console(file=out, width=300))
    said = out.getvalue()
    steps = ("Reading the data …", "Making the tokenizer …", "Making the first batches …", "Training translate on cpu")
    assert [said.index(step) for step in steps] == sorted(said.index(step) for step in steps)
    assert re.search(r"Data: \d+ for training, \d+ for validation, \d+ for test[.;]", said)
    assert re.search(r"for test;.* an example has source, target\.", said)
    assert re.search(r"Estimate: roughly [\d,]+ tokens/s, so training takes about \w+ without evaluations", said)
    assert re.search(r"First example: '(\d+) cats' → '\1 Katzen'", said)
    assert re.search(r"source: \S+·\d+", said) and re.search(r"label: \S+·\d+", said)


def test_what_an_example_holds_cannot_command_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"{n} \x1b[31mred\t{n} rot\n" for n in range(200)), encoding="utf-8")
    out = io.StringIO()
    settings = [text for text in settings_for("translate", tmp_path) if "data.path" not in text]
    recipe = Recipe.load("translate", [*settings, f"data.path={tmp_path / 'pairs.tsv'}"])
    train(recipe, tmp_path / "run", device="cpu", console=Console(file=out, width=300))
    assert "First example" in out.getvalue() and "\x1b" not in out.getvalue()


class Endless(Source, kind="endless"):
    """Training data that never end, read in their order."""

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        most = None if split == "train" else 20
        return StreamTable(
            lambda: ({"source": f"{n} cats", "target": f"{n}"} for n in itertools.islice(itertools.count(), most))
        )


def test_streamed_data_are_not_read_to_their_end_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> int:
        raise AssertionError("the whole stream would be read")

    monkeypatch.setattr("qkv.runs.train.prepare.count", refuse)
    settings = [text for text in settings_for("translate", tmp_path) if not text.startswith(("data.", "tokenizer."))]
    recipe = Recipe.load("translate", [*settings, "training.max_epochs=100", "batching.pool=64", "tokenizer=byte"])
    done = train(recipe.model_copy(update={"data": Endless()}), tmp_path / "run", device="cpu")
    assert done.outcome.ending == "max_steps"


def test_training_says_when_most_examples_are_skipped(tmp_path: Path) -> None:
    lines = "".join(f"{'very ' * (60 if n % 4 else 1)}{n} cats\t{n} Katzen\n" for n in range(400))
    (tmp_path / "own.tsv").write_text(lines, encoding="utf-8")
    others = ("data.path", "tokenizer.", "source_tokenizer.")
    settings = [text for text in settings_for("translate", tmp_path) if not text.startswith(others)]
    settings += [f"data.path={tmp_path / 'own.tsv'}", "tokenizer=char", "source_tokenizer=null"]
    settings += ["batching.max_length=40", "training.max_steps=2"]
    out = io.StringIO()
    train(Recipe.load("translate", settings), tmp_path / "run", device="cpu", console=Console(file=out, width=300))
    said = out.getvalue()
    assert re.search(
        r"Warning: Most training examples are skipped: \d+ examples read; \d+ skipped \(\d+ over-long", said
    )
    assert said.index("Warning: Most training examples") < said.index("step 2")
