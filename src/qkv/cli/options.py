"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import completion

arguments: list[str] = []  # of the command line of this process

RunPath = Annotated[
    str, typer.Argument(metavar="RUN", help="A run directory, a directory in the Hub's format, or a name on the Hub.")
]
MORE_RUNS = "Further runs first, to predict together by the mean of their probabilities. "
RecipeOrPreset = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE-OR-PRESET",
        help="A recipe, a preset, a recipe file or a run directory.",
        autocompletion=completion.recipes_and_presets,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Settings to change, such as `training.max_steps=100`, or of a preset `n_layers=6`.",
        autocompletion=completion.settings,
    ),
]
Texts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TEXT]...",
        help="Texts, or one file of them: `.csv`, `.tsv`, `.jsonl`, `.parquet` or `.txt`. Without any, lines of standard "
        "input.",
    ),
]
RunsAndTexts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RUN]... [TEXT]...",
        help=MORE_RUNS
        + "Texts, or one file of them: `.csv`, `.tsv`, `.jsonl`, `.parquet` or `.txt`. Without any, lines of standard "
        "input.",
    ),
]
EnsembleWeights = Annotated[
    str | None,
    typer.Option(
        metavar="W,W…",
        help="The weights of several runs, such as `2,1,1`. [default: equal]",
    ),
]
ImageFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--image",
        metavar="FILE",
        help="A picture for an `<image>` in a text, or before a text without one; repeatable, in the order of the "
        "places. If there are only as many as one text needs, every text gets them.",
    ),
]
SoundFiles = Annotated[
    list[str] | None,
    typer.Option("--sound", metavar="FILE", help="A sound for a `<sound>` in a text, like --image; repeatable."),
]
VideoFiles = Annotated[
    list[str] | None,
    typer.Option("--video", metavar="FILE", help="A video for a `<video>` in a text, like --image; repeatable."),
]
EnsembleMode = Annotated[
    str | None,
    typer.Option(
        metavar="linear|log_linear",
        help="How several runs predict together: by the mean of their probabilities, or of their log-probabilities. "
        "[default: linear]",
    ),
]
Column = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="The column of a file that the run reads; repeatable, in the order of its inputs (text and pair, question "
        "and context …). [default: as in training, or the usual names]",
    ),
]
OutTable = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write a table with the input's columns and the results beside them: `.csv`, `.tsv`, `.jsonl` or `.parquet`.",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing file or directory at `--out`.")]
Device = Annotated[
    str,
    typer.Option(metavar="auto|cpu|cuda|mps", help="The device to compute on.", autocompletion=completion.devices),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
