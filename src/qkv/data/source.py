"""Data sources (`Source`): specs that open their examples as a table, one for each split and epoch.

Tables are read by index, so any batch of any epoch can be rebuilt from the seed alone: in any worker process, and
after a resume.
"""

from __future__ import annotations

import contextlib
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from types import UnionType
from typing import Any, ClassVar, Literal, Protocol, Union, get_args, get_origin

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationInfo, field_validator

from ..core import several
from ..core.spec import Spec, counted
from .shuffle import Shuffle, mix

OnError = Literal["raise", "skip"]
"""What happens to a bad example: "raise" an error that names its place, or "skip" and count it."""

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
SPLIT_NAMES: dict[str, Split] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
"""The split of each usual name, in lower case; the same names as in the library `datasets`."""

Example = dict[str, Any]
"""What a source returns and a task reads: `{"source": ..., "target": ...}` or `{"text": ...}` for texts. `"piece"` is
"first", "middle" or "last" if the text is part of a longer document. A conversation has its `"messages"` as JSON and
their contents as its `"text"`. `"where"` names the file and line of an example."""
TEXTS = ("source", "target", "text")


class Skipped(str):
    """An entry that a table skips: the reason, and `where` the example is, if known."""

    where: str

    def __new__(cls, reason: str, where: str = "") -> Skipped:
        skipped = super().__new__(cls, reason)
        skipped.where = where
        return skipped


class Table(Protocol):
    """The examples of one epoch, by index; None for an entry of another split.

    A list of examples is a table. A table may have a `weight`: about how many ordinary lines one entry is worth. A
    `sequential` table is read in order; its length is `sys.maxsize` until its end is reached, where it returns None.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, i: int, /) -> Example | Skipped | None: ...


@dataclass
class Counts:
    """How many examples were read, skipped and cut; `str()` gives the summary for the end of a run."""

    read: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)  # where the first example skipped for each reason is
    cut: int = 0
    tokens: int = 0
    slots: int = 0
    notes: tuple[str, ...] = ()

    def skip(self, entry: Skipped) -> None:
        self.skipped[str(entry)] += 1
        if entry.where:
            self.first.setdefault(str(entry), entry.where)

    def add(self, other: Counts) -> None:
        """Add the counts of other examples."""
        self.read += other.read
        self.skipped += other.skipped
        self.first = other.first | self.first
        self.cut += other.cut
        self.tokens += other.tokens
        self.slots += other.slots

    def update_epoch(self, epoch: Counts, pool: Counts) -> None:
        """Count a pool of examples. Of several epochs only the one with the most examples counts, since they are the same
        examples again: `epoch` is the sum of its pools. Tokens and slots are of all batches."""
        if epoch.read >= self.read:
            self.read, self.skipped, self.first, self.cut = epoch.read, epoch.skipped, epoch.first, epoch.cut
        self.tokens += pool.tokens
        self.slots += pool.slots

    @property
    def mostly_skipped(self) -> bool:
        """Whether more than half of the examples were skipped."""
        return 2 * self.skipped.total() > self.read

    @property
    def fill(self) -> float:
        """Real tokens ÷ slots: 1.0 means no padding."""
        return self.tokens / self.slots if self.slots else 0.0

    def __str__(self) -> str:
        text = f"{counted(self.read, 'example')} read"
        if self.skipped:
            reasons = ", ".join(self._reason(reason, n) for reason, n in self.skipped.most_common())
            text += f"; {self.skipped.total():,} skipped ({reasons}), {_share(self.skipped.total(), self.read)} of all"
        if self.cut:
            text += f"; {self.cut:,} over-long cut, {_share(self.cut, self.read)} of all"
        if self.slots:
            text += f"; {self.fill:.1%} of the batches' slots held tokens"
        return "; ".join([text, *self.notes])

    def _reason(self, reason: str, n: int) -> str:
        first = self.first.get(reason)
        return f"{n:,} {reason}" + (f", {'' if n == 1 else 'first '}{first!r}" if first else "")


def _share(part: int, whole: int) -> str:
    """A percentage that is rounded to 0 or 100 only if it is exactly that."""
    share = part / max(whole, 1)
    return f"{share:.0%}" if 0.01 <= share <= 0.99 or share in (0, 1) else f"{share:.2%}"


def check_split(split: object) -> None:
    """Raise ValueError for anything but the name of a split."""
    if split not in SPLITS:
        raise ValueError(f"a split is {', '.join(SPLITS[:-1])} or {SPLITS[-1]}, not {several.shown(split)}")


def _is_list(annotation: Any) -> bool:
    """Whether a setting is a list of texts or numbers, of any length, and neither of these alone."""
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    lists = [kind for kind in kinds if get_origin(kind) is tuple and get_args(kind)[-1:] == (Ellipsis,)]
    items = {item for kind in lists for one in get_args(kind)[:1] for item in (get_args(one) or (one,))}
    return bool(items) and items <= {str, int, float} and not {str, int, float} & set(kinds)


class Source(Spec, role="source"):
    """A data source. A new one is a subclass with a `kind` and a `table`.

    class Greetings(Source, kind="greetings"):
        def table(self, split, *, seed=0, epoch=0):
            return [{"source": "hello", "target": "bonjour"}]

    path_fields: the settings that name files or folders. In a recipe file they are relative to that file.
    on_hub:      whether these may also name a dataset on the Hub.
    takes_time:  whether reading all texts takes seconds of computing, so a second process may start early (`data.ahead`).
    """

    path_fields: ClassVar[tuple[str, ...]] = ("path", "validation_path", "test_path")
    on_hub: ClassVar[bool] = False
    takes_time: ClassVar[bool] = False

    @field_validator("*", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any, info: ValidationInfo) -> Any:
        """One text or number for a list of them is a list of one."""
        if not isinstance(value, str | int) or isinstance(value, bool) or info.field_name is None:
            return value
        return (value,) if _is_list(cls.model_fields[info.field_name].annotation) else value

    @property
    def libraries(self) -> tuple[str, ...]:
        """The modules of optional libraries that the source always needs. Libraries for some kinds of files are left out."""
        return ()

    @property
    def fixed(self) -> bool:
        """Whether a split's table is the same for every seed and epoch, so its tokens can be cached."""
        return False

    def split_setting(self, name: str, split: Split) -> Any:
        """A setting of a split: `path` for training, `validation_path` and `test_path` for the others."""
        check_split(split)
        return getattr(self, name if split == "train" else f"{split}_{name}")

    @abstractmethod
    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        """The examples of one split. Deterministic for (seed, epoch); a source of files may ignore both.

        Raises ValueError if the data are missing, empty or unreadable.
        """

    @property
    def special(self) -> tuple[str, ...]:
        """Words in the texts that a tokenizer should keep as one token each, such as `<de>`."""
        return ()

    @property
    def tags(self) -> tuple[str, ...]:
        """The `special` tokens of which one begins every source text: the target language."""
        return ()

    def notes(self) -> tuple[str, ...]:
        """Sentences that tell the user how the data are used, such as what is held out."""
        return ()

    def examples(
        self, split: Split = "train", *, seed: int = 0, epoch: int = 0, shuffle: bool | None = None
    ) -> Iterator[Example]:
        """Iterate over the good examples of one epoch; by default, the "train" split is shuffled."""
        check_split(split)
        if seed is None or epoch is None:
            raise ValueError(f"{'seed' if seed is None else 'epoch'} is a whole number, not None")
        several.whole_numbers(-(1 << 63), seed=seed, epoch=epoch)
        table = self.table(split, seed=seed, epoch=epoch)
        mixed = split == "train" if shuffle is None else shuffle
        mixed = mixed and not getattr(table, "sequential", False)
        start, count = 0, 16  # few at first, so the first example comes fast
        while start < len(table):
            places = order(table, start, start + count, mix(seed, epoch) if mixed else None)
            yield from read(table, places.tolist(), Counts())
            start, count = start + count, min(2 * count, 1024)

    def texts(self, split: Split = "train") -> Iterator[str]:
        """Every text of a split, including both sides of pairs: what a tokenizer is trained on."""
        for example in self.examples(split, shuffle=False):
            yield from (text for name, text in example.items() if name in TEXTS)


# fmt: off
HOMES: dict[str, tuple[str, ...]] = {
    "any_digits": ("any-digits",),
    "memory": ("memory",),
    "memory_series": ("memory-series",),
    "mixture": ("mixture",),
    "spoken_strings": ("spoken-strings",),
    "readers.audio": ("sounds",),
    "readers.cloze": ("cloze",),
    "readers.coco_voc": ("coco", "voc"),
    "readers.conll": ("columns",),
    "readers.dataset_series": ("dataset-series",),
    "readers.digits": ("digits",),
    "readers.fasta": ("fasta",),
    "readers.hub_datasets": ("datasets",),
    "readers.image_captions": ("captions",),
    "readers.images": ("images",),
    "readers.jsonl": ("jsonl",),
    "readers.labelled_text": ("labelled",),
    "readers.midi_scores": ("scores",),
    "readers.mnist_idx": ("idx",),
    "readers.multiple_choice": ("choices",),
    "readers.parallel_text": ("pairs",),
    "readers.parquet": ("parquet",),
    "readers.python_stdlib": ("stdlib",),
    "readers.segmentation_masks": ("masks",),
    "readers.squad": ("questions",),
    "readers.text": ("text",),
    "readers.time_series": ("series",),
    "readers.transcripts": ("transcripts",),
    "readers.video": ("clips",),
    "synthetic.bird_calls": ("calls",),
    "synthetic.chord_progressions": ("progressions",),
    "synthetic.copy_reverse_sort": ("copy", "reverse", "sort"),
    "synthetic.fact_questions": ("facts",),
    "synthetic.film_reviews": ("verdicts",),
    "synthetic.listops": ("listops",),
    "synthetic.localise": ("localise",),
    "synthetic.made_speech": ("made-speech",),
    "synthetic.match_reports": ("matches",),
    "synthetic.moving_digits": ("moving-digits",),
    "synthetic.named_entities": ("mentions",),
    "synthetic.paraphrases": ("paraphrases",),
    "synthetic.proteins": ("folds",),
    "synthetic.shapes": ("shapes", "scenes"),
    "synthetic.story_endings": ("endings",),
    "synthetic.waves": ("waves",),
    "synthetic.word_senses": ("senses",),
}
# fmt: on
"""The modules that define sources, each with its kinds. One is imported when its kind is first asked for."""

for _home, _kinds in HOMES.items():
    for _kind in _kinds:
        Source.kinds.later(_kind, f"{__package__}.{_home}")


def order(table: Table, start: int, stop: int, seed: int | None) -> NDArray[np.int64]:
    """The table indices at positions start … stop − 1 of an epoch: shuffled by the seed, or in order if it is None."""
    places = np.arange(start, min(stop, len(table)), dtype=np.int64)
    return places if seed is None else Shuffle(len(table), seed)(places)


def read(table: Table, indices: Iterable[int], counts: Counts) -> list[Example]:
    """The good examples at `indices`, in the order given. Skipped entries are counted."""
    examples: list[Example] = []
    for i in indices:
        entry = table[i]
        if entry is None:
            continue
        counts.read += 1
        if isinstance(entry, Skipped):
            counts.skip(entry)
        else:
            examples.append(entry)
    return examples


def new_notes(data: Source, before: Source) -> list[str]:
    """Notes on data, without those on the data before. Files that are gone have no notes."""
    known: set[str] = set()
    with contextlib.suppress(ValueError, OSError):
        known.update(before.notes())
    with contextlib.suppress(ValueError, OSError):
        return [f"Data: {note}." for note in data.notes() if note not in known]
    return []


# -- the split that a name tells -------------------------------------------------------------------------------------


def names_of(split: Split) -> tuple[str, ...]:
    """Return the usual names of a split, first the name that qkv uses."""
    return tuple(name for name, one in SPLIT_NAMES.items() if one == split)


def split_of(path: PurePath) -> Split | None:
    """Return the split that a word in the name of a file or folder tells."""
    words = re.split(r"[\W\d_]+", path.name.lower())
    return next((SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES), None)


def placed_split(path: PurePath) -> Split | None:
    """Return the split of the first folder on the path whose whole name is that of a split, or else of the file's name."""
    folders = (SPLIT_NAMES.get(part.lower()) for part in path.parts[:-1])
    return next((split for split in folders if split is not None), None) or split_of(path)


def note_on_other_splits(names: Sequence[PurePath]) -> Iterator[str]:
    """Yield a note if some training files are named after other splits, and another is named after training."""
    splits = [placed_split(name) for name in names]
    others = [name for name, split in zip(names, splits, strict=True) if split in SPLITS[1:]]
    if not others or "train" not in splits:
        return
    listed = ", ".join(map(str, others[:3])) + (" …" if others[3:] else "")
    its, one = ("its name tells", "the file") if len(others) == 1 else ("their names tell", "the files")
    are = "is" if len(others) == 1 else "are"
    yield (
        f"{counted(len(others), 'training file')} {are} of another split, as {its} ({listed}); "
        f"if so, give {one} with data.validation_path and data.test_path, and data.path=… for training alone"
    )
