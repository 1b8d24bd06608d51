"""Tasks, one folder each, with their objectives and pictures of samples. A folder imports all its modules.

Importing this package tells which kinds there are; a folder is imported when its kind is first asked for.
"""

from importlib import import_module
from typing import NamedTuple

from ...data.task import Task
from ...training.objective import Objective


class _Kinds(NamedTuple):
    task: tuple[str, ...]
    objective: tuple[str, ...] = ()


FOLDERS: dict[str, _Kinds] = {
    "captioning": _Kinds(("caption", "see")),
    "denoising": _Kinds(("span-corruption", "denoising"), ("span-corruption", "denoising")),
    "detection": _Kinds(("detect",), ("detection",)),
    "forecasting": _Kinds(("forecast",)),
    "image_classification": _Kinds(("image-classify",)),
    "image_text_retrieval": _Kinds(("retrieve",), ("clip", "siglip")),
    "masked_images": _Kinds(("masked-patches",)),
    "masked_language_modeling": _Kinds(("masked-language-model",), ("masked-language-model",)),
    "multiple_choice": _Kinds(("choice",), ("choice",)),
    "music": _Kinds(("music",)),
    "omni": _Kinds(("omni",)),
    "picture_restoration": _Kinds(("restore", "upscale")),
    "prefix_language_modeling": _Kinds(("prefix-language-model",), ("prefix-language-model",)),
    "question_answering": _Kinds(("answer",)),
    "replaced_token_detection": _Kinds(("replaced-tokens",), ("replaced-tokens",)),
    "segmentation": _Kinds(("segment",)),
    "sound_classification": _Kinds(("sound",)),
    "speech_recognition": _Kinds(("recognize", "recognize-ctc"), ("ctc",)),
    "tagging": _Kinds(("tag",)),
    "text_classification": _Kinds(("classify",)),
    "text_regression": _Kinds(("regress",)),
    "text_similarity": _Kinds(("similarity",), ("cosine", "contrastive")),
    "video_classification": _Kinds(("video-classify",)),
}
"""The folders of this package that define tasks, each with its kinds; a new one is added here."""

for _folder, _kinds in FOLDERS.items():
    for _role, _names in ((Task, _kinds.task), (Objective, _kinds.objective)):
        for _name in _names:
            _role.kinds.later(_name, f"{__name__}.{_folder}")


def import_one(kind: str | None) -> None:
    """Import a task, if there is one of this kind. How its metrics are displayed is registered then, too."""
    Task.kinds.get(kind or "")


def import_all() -> None:
    """Import every task."""
    for folder in FOLDERS:
        import_module(f".{folder}", __name__)
