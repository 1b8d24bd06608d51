"""The files that programs look for beside an exported model's graphs."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

from ...data.tokenizers import tokenizer_json
from ...data.tokenizers.readers.hub_config import CONFIG as TOKENIZER_CONFIG
from ...io.directories.layout import CONFIG, SETTINGS_OF_MODELS, TOKENIZER, Contents, read_json, write_json
from ..inference.embed import cuts_left, longest_embedded
from ..inference.run import Run
from ..tasks.whole_texts import Sentences


def write_settings(run: Run, folder: Path) -> bool:
    """Write configuration, tokenizer and settings of generation into an empty folder, without weights: in the Hub's format
    if a family matches the model as it is, else in qkv's own. Returns whether it was the Hub's.

    The tokenizer truncates texts, and puts special tokens around them, as the run does if it classifies or embeds them.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run.save(folder, with_weights=False)
    _write_truncation(run, folder)
    return not any("is saved under the model type" in str(warning.message) for warning in caught)


def _write_truncation(run: Run, folder: Path) -> None:
    """Write the longest text that the run reads into the files of the tokenizer, if it cuts longer ones."""
    task, path = run.trained_on, folder / TOKENIZER
    cuts = isinstance(task, Sentences)
    longest = task.longest if isinstance(task, Sentences) else longest_embedded(run)
    if longest is None or run.tokenizer is None or not path.is_file():
        return
    content = json.loads(run.tokenizer.templated().to_json() if cuts else path.read_text("utf-8"))
    direction = "Left" if not cuts and cuts_left(run) else "Right"
    content["truncation"] = {"direction": direction, "max_length": longest, "strategy": "LongestFirst", "stride": 0}
    tokenizer_json.write_text(tokenizer_json.place(path), json.dumps(content, ensure_ascii=False))
    if (config := folder / TOKENIZER_CONFIG).is_file():
        write_json(config, {**read_json(config), "model_max_length": longest})


def contents(what: str, *graphs: str) -> Contents:
    """What the directory of an exported model may hold: settings and `graphs`."""
    return Contents(what, (*SETTINGS_OF_MODELS, *graphs), needs=CONFIG)
