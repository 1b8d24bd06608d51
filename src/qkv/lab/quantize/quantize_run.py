"""`qkv quantize`: quantize a run, evaluate it before and after, save it, and report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

from ...core.atomic import check_replaceable, check_room, replacing_folder
from ...core.spec import counted
from ...data.source import SPLITS
from ...io.directories.layout import EVALUATION, MODEL, REPORT, Contents, refuse, write_json, write_text
from ...io.directories.locate import is_hub
from ...io.hub.gguf.container import is_gguf
from ...nn.layers.quantized import check_not_quantized
from ...nn.models.heads.sequence import SentenceVector
from ...nn.models.quantized.quantize import Quantized
from ...nn.quantization.scheme import Activations, Method, Scheme, Weights, check_method, scheme_of
from ...runs.inference.held_out import recipe_of
from ...runs.inference.quantization.calibration import Data, batched, text_rows
from ...runs.inference.quantization.quantize import EXAMPLES, quantized, usual_method
from ...runs.inference.run import Run, load
from ...runs.recipes.model_choice import ModelChoice
from ...runs.recipes.recipe import Recipe
from .page import PAGE, write_page
from .quality import Quality, of_rows, of_test_split, of_vectors
from .result import QuantizedRun

RESULT = "quantization.json"
QUANTIZED = Contents("a quantized run", (*MODEL.files, RESULT, PAGE, EVALUATION, REPORT), needs=RESULT)
ROWS = 64  # of a text that a run without a recipe is evaluated on


def quantize(
    run: Run | Path | str,
    out: Path | str | None = None,
    *,
    weights: Weights | Scheme,
    group_size: int | None = None,
    symmetric: bool = True,
    activations: Activations = "none",
    method: Method | None = None,
    calibrate: Data | None = None,
    examples: int = EXAMPLES,
    embeddings: bool = False,
    head: bool = False,
    keep: str | Sequence[str] = (),
    evaluate: bool = True,
    max_examples: int | None = None,
    overwrite: bool = False,
    device: str | torch.device = "auto",
    console: Console | None = None,
) -> QuantizedRun:
    """Quantize the weights of a run and write it to `out`, with `quantization.json` and `quantization.html`.

    out:       by default the run's directory with the name of the weights: `runs/gpt` becomes `runs/gpt-int4`.
    evaluate:  evaluate before and after: on the test split of the run's recipe, or for a language model without one on the
               part of the calibration text that calibration leaves; max_examples: how many, by default the recipe's.

    The other arguments are the same as in `Run.quantize`. Raises ValueError, before anything is written, for a layer
    that can't take the weights, calibration data that are empty or that the run doesn't read, and quantizing twice.
    """
    console = console or Console(quiet=True)
    run = run if isinstance(run, Run) else load(run, device)
    check_not_quantized(run.model, "quantization")
    scheme = scheme_of(weights, group_size=group_size, symmetric=symmetric, activations=activations)
    method = check_method(usual_method(scheme, calibrate) if method is None else method)
    if calibrate is None and method != "rtn":
        recipe_of(run)  # whose training data it is
        calibrate = "train"
    folder = Path(out) if out is not None else _usual_folder(run, scheme)
    _check_folder(folder, run, overwrite)
    measure = _measure(run, calibrate, examples, max_examples) if evaluate else None
    with _progress(console) as tell:
        other, done = quantized(
            run,
            scheme,
            method=method,
            calibrate=calibrate,
            examples=examples,
            embeddings=embeddings,
            head=head,
            keep=keep,
            tell=tell,
        )
    before, after = (None, None) if measure is None else (_told(console, measure, each) for each in (run, other))
    result = QuantizedRun(
        run.name,
        folder,
        scheme.weights,
        method,
        scheme.activations,
        done.groups,
        "" if calibrate is None else _words(calibrate, done),
        {path: round(error, 6) for path, error in done.errors.items()},
        done.weights,
        {} if before is None or after is None else {"before": before.metrics, "after": after.metrics},
        0 if after is None else after.examples,
        "" if after is None else after.evaluated_on,
        done.rounded,
    )
    with replacing_folder(folder, QUANTIZED.check if overwrite else refuse) as beside:
        _save(run, other, beside, folder, after)
        write_text(beside / RESULT, result.to_json())
        write_page(result, beside)
    return result


def _words(calibrate: Data, done: Quantized) -> str:
    """What was read for calibration, and how much of it."""
    data = str(calibrate) if isinstance(calibrate, str | Path) else f"{len(calibrate)} texts"
    tokens = f", {counted(done.tokens, 'token')}" if done.tokens else ""
    return f"{data}: {counted(done.rows, 'row')}{tokens}"


def _usual_folder(run: Run, scheme: Scheme) -> Path:
    if run.path is None:
        raise ValueError("this run was not loaded from a directory; give the directory to write to")
    return run.path.with_name(f"{run.path.name}-{scheme.weights}")


def _measure(
    run: Run, calibrate: Data | None, examples: int, max_examples: int | None
) -> Callable[[Run], Quality] | None:
    """How the quality is measured; None if there is nothing to measure it on."""
    if run.recipe is not None:
        return partial(_of_recipe, run, run.recipe, max_examples)
    if calibrate is not None and run.task == "read" and (not isinstance(calibrate, str) or calibrate not in SPLITS):
        rows = text_rows(run, calibrate)
        held = rows[examples : examples + ROWS]
        where = "lines that calibration leaves" if held else "the calibration text itself"
        assert run.tokenizer is not None
        texts = run.tokenizer.decode_batch(held or rows[:ROWS])
        return lambda each: of_vectors(run, each, texts, where)
    if calibrate is None or run.task != "continue":
        return None
    rows = text_rows(run, calibrate)
    held = rows[examples : examples + ROWS]
    where = "the rest of the calibration text" if held else "the calibration text itself"
    some = batched(held or rows[:ROWS], run.model.device)
    return lambda each: of_rows(each, some, where)


def _of_recipe(run: Run, recipe: Recipe, max_examples: int | None, each: Run) -> Quality:
    """The metrics of the recipe; of an embedder, also how close its embeddings of the same texts are to the original's."""
    quality = of_test_split(replace(each, recipe=recipe), max_examples)
    if not isinstance(run.model.spec.head, SentenceVector):
        return quality
    texts = list(islice(recipe.data.texts("test"), ROWS))
    return replace(quality, metrics=quality.metrics | of_vectors(run, each, texts, "").metrics)


def _told(console: Console, measure: Callable[[Run], Quality], run: Run) -> Quality:
    with console.status("evaluating") if console.is_terminal else nullcontext():
        return measure(run)


def _progress(console: Console) -> AbstractContextManager[Any]:
    """Context with the function that shows a bar of the layers."""

    class Shown:
        def __enter__(self) -> Callable[[str, int, int], None]:
            self.bar = Progress(console=console, transient=True, disable=not console.is_terminal)
            self.bar.start()
            self.task = self.bar.add_task("quantizing", total=None)
            return lambda path, done, total: self.bar.update(self.task, completed=done, total=total, description=path)

        def __exit__(self, *_: object) -> None:
            self.bar.stop()

    return Shown()


def _check_folder(folder: Path, run: Run, overwrite: bool) -> None:
    """Raise ValueError for a directory that is not free, and for that of the run itself; OSError if the disk has no room."""
    if run.path is not None and run.path.resolve() == folder.resolve():
        raise ValueError(f"{folder} is the run that is quantized; choose another directory by --out")
    check_replaceable(folder, QUANTIZED.check if overwrite else refuse)
    check_room(folder, run.model.spec.n_parameters // 2)  # no format takes less than 4 bits


def _save(source: Run, run: Run, beside: Path, folder: Path, quality: Quality | None) -> None:
    """Write the run, which will be in `folder`; its recipe trains an adapter over it. A model of the Hub stays in the
    Hub's format if it can."""
    if run.recipe is not None:
        recipe = run.recipe.model_copy(
            update={
                "model": ModelChoice(directory=str(folder.resolve())),
                **dict.fromkeys(("vectors", "adapter", "tokenizer", "source_tokenizer")),
            }
        )
        run = replace(run, recipe=recipe)
    of_the_hub = source.path is not None and (is_gguf(source.path) or is_hub(source.path))
    run.save(beside, None if of_the_hub else "qkv")
    if quality is not None and run.recipe is not None:
        about = {"split": "test", "examples": quality.examples, "metrics": quality.metrics}
        write_json(beside / EVALUATION, {**about, "signatures": {}, "samples": [], "notes": [], "seconds": 0.0})
