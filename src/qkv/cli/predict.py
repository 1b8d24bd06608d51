"""`qkv predict`: the predictions of a trained run for new inputs, by the run's task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .files_beside import FilesBeside
from .options import (
    MORE_RUNS,
    Column,
    Device,
    EnsembleMode,
    EnsembleWeights,
    ImageFiles,
    JsonLines,
    Overwrite,
    RunPath,
    SoundFiles,
    VideoFiles,
)
from .say import echo
from .texts import CHUNK, Asked, asked, dumps, each, existing_path, load_runs, one_line, warn_of_settings

if TYPE_CHECKING:
    from ..runs.inference.predict import Prediction

FILES = 16  # files of standard input whose predictions are in memory at once, masks among them


def predict(
    run: RunPath,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]... [INPUT]...",
            help=MORE_RUNS
            + "Texts or files, as the run's task needs; or one file of them (`.csv`, `.tsv`, `.jsonl`, `.parquet`, "
            "`.txt`), or a folder of images, sounds or videos. Separate texts that belong together by tabs "
            "(`QUESTION<tab>CONTEXT`). Without any, lines of standard input; for music, a new piece.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE|DIR",
            help="Write a table with the input's columns and the predictions and probabilities beside them (`.csv`, `.tsv`, "
            "`.jsonl`, `.parquet`); or masks, boxes, series and music to files in DIR, named after the inputs.",
        ),
    ] = None,
    column: Column = None,
    overwrite: Overwrite = False,
    threshold: Annotated[
        float | None,
        typer.Option(
            metavar="P", min=0, max=1, help="Show detected objects of at least this probability. [default: 0.5]"
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Seed of sampling, for music. [default: 0]")] = None,
    among: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|FILE",
            help="A dual encoder such as CLIP: show which of the pictures in DIR, or of the lines of FILE, are nearest to "
            "each text or picture.",
        ),
    ] = None,
    top: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="How many of --among to show. [default: 5]")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Settings by which a forecast reads its file, such as `gaps=fill`; repeatable. [default: the run's]",
        ),
    ] = None,
    image: ImageFiles = None,
    sound: SoundFiles = None,
    video: VideoFiles = None,
    ensemble_weights: EnsembleWeights = None,
    ensemble_mode: EnsembleMode = None,
    json: JsonLines = False,
    device: Device = "auto",
) -> None:
    """Predict with a trained run: classes, tags, answers, choices, masks, boxes, captions, forecasts, music, or the
    nearest texts or pictures.

    `qkv predict RUN in.csv --out out.csv` keeps the columns of the file and adds the predictions. A blank line gives a blank
    line.
    """
    from ..io.directories.layout import claim_folder
    from ..runs.inference.predict import check_options, predict, predicts_without_input
    from ..runs.inference.tables.write import check_folder, is_output
    from ..runs.inference.uses import reads_text

    loaded, inputs = load_runs(run, inputs, "predict", device, ensemble_weights, ensemble_mode)
    warn_of_settings(inputs, "`qkv predict` uses the run's settings, leave it out (or, to forecast, --data)")
    files = FilesBeside(loaded, image, sound, video)
    if files and (not loaded.media or not inputs):
        inputs, files = _about(files, inputs), FilesBeside(loaded)
    given: dict[str, Any] = {
        "threshold": threshold,
        "seed": seed,
        "among": among,
        "top": top,
        "data": data or None,
    }
    options = {name: value for name, value in given.items() if value is not None}
    check_options(loaded, options)
    answers: Iterable[tuple[str, Iterable[Prediction] | None]]
    table = out is not None and is_output(out)
    if out is not None and not table:
        check_folder(out)
        claim_folder(out, None, filter(None, map(existing_path, inputs or ())))
    question = asked(inputs, loaded, "predict", out if table else None, column, overwrite and table)
    if question.texts is not None:
        question.texts = files.beside(question.texts)
        inputs = list(question.texts or ())
    if table or question.table is not None:
        _answer_rows(
            question,
            lambda texts: predict(loaded, files.of(texts), **options),
            out,
            json,
            reads_text(loaded),
            overwrite,
        )
        return
    if inputs:
        answers = _stream(inputs, lambda texts: predict(loaded, texts, **options))
    elif predicts_without_input(loaded):
        answers = [("", predict(loaded, [], **options))]
    else:
        at_once = CHUNK if reads_text(loaded) else FILES
        answers = each(None, lambda lines: ([one] for one in predict(loaded, files.of(lines), **options)), at_once)
    names: set[str] = set()
    for text, predictions in answers:
        if predictions is None:
            echo(dumps({"input": text}) if json else "")
        for prediction in predictions or ():
            if out is not None:
                _write(prediction, out, names, overwrite)
            echo(_shown(prediction, json, reads_text(loaded)))


def _about(files: FilesBeside, questions: list[str] | None) -> list[str]:
    """Return the inputs of a run that reads files. There is one picture for all questions, or one for each question. For a
    run that also reads texts, a file without a question gets a text with only its placeholder.

    Raises ValueError for files of a kind that the run doesn't read.
    """
    from ..runs.inference.uses import kind_of_files

    run, given = files.run, {name: some for name, some in files.by_kind().items() if some}
    if run.media:
        from ..runs.inference.reading.beside import beside

        return [beside(run, [""], {name: [file]})[0] for name, some in given.items() for file in some]
    reads = kind_of_files(run)
    for name in given:
        if name != reads:
            what = f"no {name}s" if reads is None else f"{reads}s and no {name}s"
            raise ValueError(f"{run.name} reads {what}; leave --{name} out")
    paths = [str(file) for some in given.values() for file in some]
    if not questions:
        return paths
    if reads != "image":
        raise ValueError(f"{run.name} reads {reads}s without texts beside them; leave the texts out")
    pictures = paths * len(questions) if len(paths) == 1 else paths
    if len(pictures) != len(questions):
        raise ValueError(
            f"--image is given {len(paths)} times for {len(questions)} texts; give one for all, or one for each"
        )
    return [f"{picture}\t{question}" for picture, question in zip(pictures, questions, strict=True)]


def _answer_rows(
    question: Asked,
    answer: Callable[[list[str]], Iterable[Prediction]],
    out: Path | None,
    json: bool,
    texts: bool,
    overwrite: bool,
) -> None:
    """Answer the rows of a table or folder: printed, written into a table, or with their files in the folder `out`."""
    from ..runs.inference.tables.write import result_of

    names: set[str] = set()

    def show(text: str, prediction: Prediction | None) -> None:
        if prediction is None:
            echo(dumps({"input": text}) if json else "")
            return
        if out is not None:
            _write(prediction, out, names, overwrite)
        echo(_shown(prediction, json, texts))

    question.answer(answer, show, result_of, at_once=CHUNK if texts else FILES, noun="text" if texts else "file")


def _shown(prediction: Prediction, json: bool, of_text: bool) -> str:
    """A prediction as printed; one line for a text, whatever line ends the text has."""
    if json:
        return dumps({"input": prediction.input, **prediction.fields})
    return one_line(prediction.text) if of_text else prediction.text


def _stream(
    inputs: list[str], answer: Callable[[list[str]], Iterable[Prediction]]
) -> Iterator[tuple[str, Iterable[Prediction] | None]]:
    """Yield None for blank inputs, and a lazy iterable of predictions for the others, so few masks are in memory."""
    for blank, texts in groupby(inputs, key=lambda text: not text.strip()):
        if blank:
            yield from ((text, None) for text in texts)
        else:
            yield "", answer(list(texts))


def _write(prediction: Prediction, folder: Path, names: set[str], overwrite: bool) -> None:
    """Write the files of a prediction. Raises ValueError if an earlier input has the same name."""
    if prediction.name in names:
        raise ValueError(f"two inputs are named {prediction.name!r}; predict them one by one, each with its own --out")
    names.add(prediction.name)
    prediction.write(folder, overwrite)
