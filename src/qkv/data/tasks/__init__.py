"""What models are taught, one file a task. Importing this registers them, and the sources that only they read."""

import importlib
import pkgutil

from .. import (  # noqa: F401
    box_files,
    caption_files,
    choices,
    cloze,
    columns,
    endings,
    facts,
    fasta,
    folds,
    image_sources,
    labelled,
    mask_files,
    matches,
    mentions,
    mixture,
    paraphrases,
    progressions,
    questions,
    scores,
    shapes,
    sounds,
    verdicts,
    video,
)

for _found in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_found.name}")
