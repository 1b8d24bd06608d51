"""Guess a recipe for a folder or an archive: images, boxes, masks, videos, sounds, music or text files."""

from __future__ import annotations

import io
import os
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from statistics import median

from ....core.optional_libraries import need
from ....core.spec import counted
from ....data.file_kinds import is_hidden
from ....data.files.compressed import bare_name, open_bytes, open_tar, suffix_of
from ....data.files.json_lines import json_file
from ....data.files.records import FORMATS, RecordFormat
from ....data.media.audio import duration
from ....data.media.exif import ORIENTATION, SWAPPED, UPRIGHT
from ....data.media.image_files import ARCHIVES, Placed
from ....data.media.image_files import SUFFIXES as IMAGES
from ....data.media.video import SUFFIXES as VIDEOS
from ....data.readers.audio import SUFFIXES as SOUNDS
from ....data.source import SPLIT_NAMES, SPLITS, Split, split_of
from .column import LABELS
from .files import of_file
from .records import CONVERSATIONS
from .result import Guess, setting
from .several import of_files
from .splits_in_folders import of_splits

LISTED = 20_000  # files of a folder that are looked at by name
OPENED = 40  # files that are opened
TEXTS = (".txt", ".md", ".rst", ".py", ".tex", ".html")
BY_NAME = "([^/_]+)_[^/]*$"  # the class of a sound whose name begins with it
MASKS = (("image", "label"), ("images", "labels"), ("images", "masks"), ("imgs", "masks"), ("image", "mask"))


@dataclass(frozen=True)
class Listing:
    """The files below a folder or in an archive, by their relative paths."""

    place: Path
    names: tuple[PurePosixPath, ...]

    def having(self, suffixes: frozenset[str] | tuple[str, ...]) -> list[PurePosixPath]:
        return [name for name in self.names if name.suffix.lower() in suffixes]

    def opened(self, names: list[PurePosixPath]) -> Iterator[bytes]:
        """The contents of some of the files, spread over all."""
        chosen = names[:: max(1, len(names) // OPENED)][:OPENED]
        if self.place.is_dir():
            yield from (Path(self.place, name).read_bytes() for name in chosen)
        elif zipfile.is_zipfile(self.place):
            with zipfile.ZipFile(self.place) as archive:
                yield from (archive.read(str(name)) for name in chosen)
        else:
            wanted = {str(name) for name in names[:OPENED]}  # the first ones, as an archive is read from its beginning
            with open_tar(self.place) as archive:
                for member in archive:
                    if member.name.removeprefix("./") in wanted and (file := archive.extractfile(member)) is not None:
                        wanted.discard(member.name.removeprefix("./"))
                        yield file.read()
                    if not wanted:
                        return


def is_archive(path: Path) -> bool:
    return path.is_file() and path.name.lower().endswith(ARCHIVES)


def of_folder(path: Path, how: RecordFormat) -> Guess | str:
    """Guess a recipe for a folder or an archive, or return what was seen if nothing fits."""
    listing = Listing(path, tuple(_names(path)))
    of_tables = partial(_tables, how=how)
    for kind in (_saved, _idx, _voc, _coco, _masks, _videos, _images, _transcripts, _sounds, _music, of_tables, _texts):
        found = kind(listing)
        if found is not None:
            return _with_unread(found, listing) if kind in (of_tables, _texts) else found
    suffixes = Counter(name.suffix.lower() or "no suffix" for name in listing.names)
    listed = ", ".join(f"{n:,} × {suffix}" for suffix, n in suffixes.most_common(5)) or "no files"
    tables = is_archive(path) and any(suffix in (*FORMATS, ".txt", ".json") for suffix in suffixes)
    return f"it holds {listed}{'; unpack it, and give a file' if tables else ''}"


def _with_unread(found: Guess | str, listing: Listing) -> Guess | str:
    """What was guessed for the texts and tables in a folder, saying which pictures, sounds and videos it leaves out."""
    kinds = {"image": listing.having(IMAGES), "sound": listing.having(SOUNDS), "video": listing.having(VIDEOS)}
    unread = [f"{counted(len(names), what)} in it, such as {names[0]}," for what, names in kinds.items() if names]
    if isinstance(found, str) or not unread:
        return found
    alone = len(unread) == 1 and sum(map(len, kinds.values())) == 1
    return replace(found, seen=(*found.seen, f"{' and '.join(unread)} {'is' if alone else 'are'} not read"))


def _names(path: Path) -> Iterator[PurePosixPath]:
    if path.is_dir():
        count = 0
        for folder, folders, files in os.walk(path):
            folders[:] = sorted(name for name in folders if not is_hidden(PurePosixPath(name)))
            for name in sorted(files):
                if not is_hidden(PurePosixPath(name)):
                    yield PurePosixPath(Path(folder, name).relative_to(path).as_posix())
                    count += 1
            if count > LISTED:
                return
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            names = (PurePosixPath(name) for name in archive.namelist() if not name.endswith("/"))
            yield from (name for name in names if not is_hidden(name))
    else:
        with open_tar(path) as members:
            found = (PurePosixPath(member.name.removeprefix("./")) for member in members if member.isfile())
            yield from (name for name in found if not is_hidden(name))


def _classes(names: list[PurePosixPath]) -> Counter[str]:
    """How many files each class has, by the folders of the files. Empty if there are fewer than two."""
    placed = Placed(Path(), list(map(str, names)))
    labels = [placed.label(i) for i in range(len(names))]
    classes = Counter(label for label in labels if label is not None and label.lower() not in SPLIT_NAMES)
    return classes if len(classes) > 1 and sum(classes.values()) == len(names) else Counter()


def _loose(names: list[PurePosixPath], what: str) -> str | None:
    """Why files are not taken for examples in the folders of their classes, if only some of them lie in none."""
    loose = [name for name in names if name.parent.name.lower() in ("", *SPLIT_NAMES)]
    classes = {name.parent.name for name in names} - {name.parent.name for name in loose}
    if not loose or len(classes) < 2 or 10 * len(loose) > len(names):
        return None
    some = ", ".join(map(str, loose[:3])) + (" …" if loose[3:] else "")
    return (
        f"it holds {counted(len(names), what)} in {len(classes)} folders, but {counted(len(loose), 'other')} in the folder "
        f"of no class ({some}); move or remove {'it' if len(loose) == 1 else 'them'}"
    )


def _nested(names: list[PurePosixPath]) -> tuple[str, ...]:
    """A sentence on a class whose folder is in the folder of another class."""
    folders = {name.parent for name in names}
    inner = [(one, two) for one in sorted(folders) for two in one.parents if two.name and two in folders]
    if not inner:
        return ()
    one, two = inner[0]
    more = f", and {counted(len(inner) - 1, 'other folder')} are alike" if inner[1:] else ""
    return (f"the files in {one} are of the class {one.name}, and not of {two.name} in whose folder it is{more}",)


def _shown(classes: Counter[str], what: str, where: str = "folder") -> str:
    listed = ", ".join(f"{name} ({n:,})" for name, n in classes.most_common(5)) + (" …" if len(classes) > 5 else "")
    return f"{counted(sum(classes.values()), what)} in {len(classes)} classes, each named by its {where}: {listed}"


def _idx(listing: Listing) -> Guess | None:
    if not any("-idx3-ubyte" in name.name for name in listing.names):
        return None
    settings = (
        "data.kind=idx",
        setting("data.path", listing.place),
        "model.image=[28,28]",
        "model.patch=[4,4]",
        "batching.tokens=3200",
    )
    return Guess("vit", settings, ("images and labels in MNIST's IDX format",))


def _saved(listing: Listing) -> Guess | str | None:
    """A recipe for a directory that the library datasets saved, by the features of its columns."""
    tops = {str(name) for name in listing.names}
    if not listing.place.is_dir() or not ("dataset_dict.json" in tops or {"dataset_info.json", "state.json"} <= tops):
        return None
    infos = [name for name in listing.names if name.name == "dataset_info.json"]
    info = next((name for name in infos if split_of(name.parent) == "train"), infos[0] if infos else None)
    about = json_file(listing.place / info) if info else {}
    features = about.get("features") if isinstance(about, dict) else None
    features = features if isinstance(features, dict) else {}
    splits = [name.parent.name for name in infos if name.parent.name]
    parts = f", with the splits {', '.join(splits)}" if splits else ""
    seen = (f"a directory that the library datasets saved{parts}; its columns are {', '.join(features)}",)
    place = ("data.kind=datasets", setting("data.path", listing.place))
    kinds = {name: feature if isinstance(feature, dict) else {} for name, feature in features.items()}
    labels = [name for name, one in kinds.items() if one.get("_type") == "ClassLabel" or name.lower() in LABELS]
    texts = [name for name, one in kinds.items() if one.get("dtype") == "string" and name not in labels]
    if len(labels) == 1 and len(texts) in (1, 2):
        pair = (setting("data.pair", texts[1]),) if texts[1:] else ()
        columns = (setting("data.text", texts[0]), *pair, setting("data.label", labels[0]))
        return Guess("classify", (*place, *columns), (*seen, f"{labels[0]} is the class"))
    if talks := next((name for name in CONVERSATIONS if name in features), None):
        return Guess("chat", (*place, setting("data.messages", talks)), (*seen, f"{talks} holds conversations"))
    if len(features) == len(texts) == 1:
        return Guess("lm", (*place, setting("data.text", texts[0])), seen)
    return f"it is {seen[0]}; {' '.join(place)} reads it with the settings of columns, such as data.text, and a recipe"


def _voc(listing: Listing) -> Guess | None:
    boxes = [name for name in listing.having((".xml",)) if name.parent.name == "Annotations"]
    if not boxes:
        return None
    images = listing.having(IMAGES)
    settings, seen = _detection(listing, images)
    what = f"{counted(len(boxes), 'file')} of boxes in Pascal VOC's format, {counted(len(images), 'image')}"
    return Guess("detect", ("data.kind=voc", setting("data.path", listing.place), *settings), (what, seen))


def _coco(listing: Listing) -> Guess | None:
    if not listing.place.is_dir():
        return None
    files = [name for name in listing.having((".json",))[:OPENED] if _is_coco(listing.place / name)]
    if not files:
        return None
    splits = {split: [name for name in files if _split_in(name) == split] for split in SPLITS}
    read = {"train": (splits["train"] or files)[0]}
    if splits["train"]:
        read |= {split: names[0] for split, names in splits.items() if len(names) == 1}
    images = listing.having(IMAGES)
    settings, seen = _detection(listing, images)
    places: list[str] = []
    for split, name in read.items():
        prefix = "" if split == "train" else f"{split}_"
        folder = Path(listing.place, _pictures_of(name, split, images))
        places += (setting(f"data.{prefix}path", listing.place / name), setting(f"data.{prefix}images", folder))
    said = [f"boxes in COCO's format in {', '.join(map(str, read.values()))}", seen]
    if others := [name for name in files if name not in read.values()]:
        listed = ", ".join(map(str, others[:3])) + (" …" if others[3:] else "")
        verb = "is" if len(others) == 1 else "are"
        said.append(
            f"{counted(len(others), 'other file')} in COCO's format {verb} not read ({listed}); data.path chooses"
        )
    return Guess("detect", ("data.kind=coco", *places, *settings), tuple(said))


def _is_coco(path: Path) -> bool:
    content = open_bytes(path)
    return all(content.find(key) >= 0 for key in (b'"images"', b'"annotations"', b'"categories"', b'"bbox"'))


def _split_in(name: PurePosixPath) -> Split | None:
    """The split that a file's name tells, or else the folder that it is in."""
    return split_of(name) or split_of(name.parent)


def _pictures_of(name: PurePosixPath, split: str, images: list[PurePosixPath]) -> PurePosixPath:
    """The folder of the pictures of a COCO file: its own, or the one with the split's name, or that of the first picture."""
    folders = list(dict.fromkeys(image.parent for image in images))
    own = [folder for folder in folders if folder == name.parent or name.parent in folder.parents]
    if len(own) == 1 and _split_in(name) is not None and name.parent.name:
        return own[0]
    if name.parent in folders:
        return name.parent
    named = (folder for folder in folders if split_of(folder) == split)
    return next(named, folders[0] if folders else PurePosixPath())


def _masks(listing: Listing) -> Guess | None:
    tops = {name.parts[0] for name in listing.having(IMAGES) if len(name.parts) > 1}
    pair = next((pair for pair in MASKS if set(pair) <= tops), None)
    if pair is None or not listing.place.is_dir():
        return None
    images = [name for name in listing.having(IMAGES) if name.parts[0] == pair[0]]
    height, width, channels = picture_sizes(listing, images)
    side = max(16, min(64, height // 8 * 8, width // 8 * 8))
    tokens = 32 * ((side // 8) ** 2 + 1)
    settings = (
        "data.kind=masks",
        setting("data.path", listing.place),
        f"data.images={pair[0]}",
        f"data.masks={pair[1]}",
        f"model.image=[{side},{side}]",
        f"model.channels={channels}",
        f"batching.tokens={tokens}",
    )
    what = f"{counted(len(images), 'image')} of {height} × {width} in {pair[0]}, with masks in {pair[1]}"
    return Guess("segment", settings, (what, f"training takes crops of {side} × {side}"))


def _videos(listing: Listing) -> Guess | None:
    videos = listing.having(VIDEOS)
    classes = _classes(videos)
    return _clips(listing, classes, 32, 3) if classes and len(videos) > len(listing.having(IMAGES)) else None


def _clips(listing: Listing, classes: Counter[str], side: int, channels: int) -> Guess:
    """Videos of which 8 frames of side × side pixels are read, in tubelets of 2 frames."""
    settings, seen = filmed(side, channels)
    settings = ("data.kind=clips", setting("data.path", listing.place), *settings)
    return Guess("video", settings, (_shown(classes, "video"), seen))


def filmed(side: int, channels: int) -> tuple[tuple[str, ...], str]:
    """Return settings of the recipe `video` for frames of side × side pixels, and a sentence about them."""
    settings = (
        "task.frames=8",
        f"model.image=[{4 * side},{side}]",
        f"model.patch=[{side // 4},{side // 4}]",
        f"model.channels={2 * channels}",
        *(("data.color=gray",) if channels == 1 else ()),
    )
    return settings, f"8 frames of {side} × {side} pixels are taken of each (task.frames, model.image)"


def _images(listing: Listing) -> Guess | str | None:
    images = listing.having(IMAGES)
    classes = _classes(images)
    if not classes:
        return _loose(images, "image")
    own = {name.lower(): name for name in classes}
    if (pair := next(([own[name] for name in pair] for pair in MASKS if own.keys() == set(pair)), None)) is not None:
        above = max((name.parent.parent for name in images), key=lambda folder: split_of(folder) == "train")
        command = f"qkv train segment data.kind=masks {setting('data.path', listing.place / above)}"
        return (
            f"it holds pictures in {pair[0]} and masks in {pair[1]}, but not at its top; `{command} data.images={pair[0]} "
            f"data.masks={pair[1]}` reads those below one folder"
        )
    height, width, channels = picture_sizes(listing, images)
    moving = _n_animated(listing, images)
    if moving == len(images[:8]):
        return _clips(listing, classes, 16 if max(height, width) <= 24 else 32, channels)
    settings, sizes = classified(height, width, channels)
    settings = ("data.kind=images", setting("data.path", listing.place), *settings)
    first = f"{moving} of {len(images[:8])} that were looked at are animated, and only their first frame is read"
    return Guess("vit", settings, (_shown(classes, "image"), *_nested(images), sizes, *((first,) if moving else ())))


def classified(height: int, width: int, channels: int) -> tuple[tuple[str, ...], str]:
    """Settings of the recipe `vit` for images of about this size, and what they are based on."""
    patch = 2 if max(height, width) <= 12 else 4 if max(height, width) <= 40 else 8
    rows, columns = (height, width) if patch < 8 else (64, 64)
    rows, columns = (max(patch, round(side / patch) * patch) for side in (rows, columns))
    tokens = 64 * (rows // patch * (columns // patch) + 1)
    settings = (
        f"model.image=[{rows},{columns}]",
        f"model.patch=[{patch},{patch}]",
        f"model.channels={channels}",
        f"batching.tokens={tokens}",
    )
    sizes = f"images of about {height} × {width} pixels"
    sizes += "" if (rows, columns) == (height, width) else f", resized to {rows} × {columns} (model.image)"
    return settings, sizes


def _sounds(listing: Listing) -> Guess | str | None:
    sounds = listing.having(SOUNDS)
    if not sounds:
        return None
    classes = _classes(sounds)
    by_name: tuple[str, ...] = ()
    if not classes:  # 7_jackson_3.wav
        classes = Counter(name.name.partition("_")[0] for name in sounds if "_" in name.name)
        if not 1 < len(classes) < len(sounds) / 5 or sum(classes.values()) < len(sounds):
            return _loose(sounds, "sound")
        by_name = (setting("data.label", BY_NAME),)
    if (heard := heard_in(listing, sounds)) is None:
        return None
    settings = ("data.kind=sounds", setting("data.path", listing.place), *by_name, *heard[0])
    shown = _shown(classes, "sound", "name before the first _" if by_name else "folder")
    return Guess("speech", settings, (shown, *(() if by_name else _nested(sounds)), heard[1]))


def heard_in(listing: Listing, sounds: list[PurePosixPath]) -> tuple[tuple[str, ...], str] | None:
    """Return settings of the recipe `speech` that suit these sounds, and a sentence about them, or None if no sound can be
    read."""
    lengths, rates = [], Counter[int]()
    for content in listing.opened(sounds):
        if (found := duration(content)) is not None:  # damaged files are skipped in training too
            lengths.append(found[0])
            rates[found[1]] += 1
    if not lengths:
        return None
    rate, length = rates.most_common(1)[0][0], median(lengths)
    hop = max(16, round(rate * length / 64))
    n_fft = 1 << max(6, (2 * hop).bit_length())
    settings: tuple[str, ...] = (f"task.hop={hop}", f"task.n_fft={n_fft}")
    settings += ("data.rates=resample", f"data.rate={rate}") if len(rates) > 1 else ()
    return settings, f"sounds of about {length:.2g} s at {rate:,} Hz; 64 frames of {hop} samples are read"


def _transcripts(listing: Listing) -> Guess | str | None:
    """Sounds with a text file of the same name beside each, or with LibriSpeech's lists."""
    sounds, texts = listing.having(SOUNDS), set(listing.having((".txt",)))
    if not sounds or not listing.place.is_dir():
        return None
    lists = [name for name in texts if name.name.endswith(".trans.txt")]
    beside = sum(name.with_suffix(".txt") in texts for name in sounds)
    if not lists and (10 * beside < 9 * len(sounds) or 2 * beside < len(texts)):
        return None
    seen = f"{counted(len(sounds), 'sound')} with their transcripts in {'lists' if lists else 'text files'} beside them"
    return of_splits("recognize-ctc", ("data.kind=transcripts",), listing.place, sounds, "sound", (seen,))


def _music(listing: Listing) -> Guess | str | None:
    pieces = listing.having((".mid", ".midi"))
    if not pieces or not listing.place.is_dir():
        return None
    seen = (counted(len(pieces), "MIDI file"),)
    return of_splits("music", ("data.kind=scores", "data.steps=4"), listing.place, pieces, "MIDI file", seen)


def _tables(listing: Listing, how: RecordFormat) -> Guess | str | None:
    """A table in a folder, or one for each split; or two parallel texts, such as `train.de` and `train.en`."""
    files = [Path(listing.place, name) for name in listing.names if len(name.parts) == 1]
    if not listing.place.is_dir() or not files:
        return None
    tables = [path for path in files if suffix_of(path) in FORMATS]
    texts = [path for path in files if suffix_of(path) not in (*FORMATS, *TEXTS, "", ".json", ".yaml")]
    if tables and (len(tables) == 1 or len({split_of(path) for path in tables} - {None}) == len(tables)):
        return of_files(tables, how) if len(tables) > 1 else of_file(tables[0], how)
    named = [path for path in files if split_of(path) and suffix_of(path) not in (".md", ".json", ".yaml")]
    splits = [split_of(path) for path in named]
    alone = len(listing.names) == len(files) and len({suffix_of(path) for path in named}) == 1
    if not tables and alone and "train" in splits and 1 < len(splits) == len(set(splits)):
        return of_files(named, how)
    trained = [path for path in texts if split_of(path) == "train"]
    languages = sorted({Path(bare_name(path)).suffix for path in trained or texts})
    stems = Counter(Path(bare_name(path)).stem for path in texts)
    alike = len({Path(bare_name(path)).stem for path in trained}) == 1
    if tables or len(languages) < 2 or not (alike or set(stems.values()) == {len(languages)}):
        return None
    if len(languages) > 2 or set(stems.values()) != {2}:
        listed = ", ".join(languages)
        return f"it holds texts in parallel ({listed}); give the two files to translate between, the source first"
    return of_files(texts, how)


def _texts(listing: Listing) -> Guess | str | None:
    files = Counter(name.suffix.lower() for name in listing.having(TEXTS))
    others = len(listing.having(IMAGES | SOUNDS | VIDEOS))
    if others > sum(files.values()) or not files or not listing.place.is_dir():
        return None
    suffix, n = files.most_common(1)[0]
    texts = listing.having((suffix,))
    more = () if suffix == ".txt" else (setting("data.suffixes", [suffix]),)
    seen: tuple[str, ...] = (f"{counted(n, suffix + ' file')} of text",)
    if unread := sum(files.values()) - n:
        listed = ", ".join(f"{count:,} × {other}" for other, count in files.most_common()[1:])
        are = "is" if unread == 1 else "are"
        seen += (f"{counted(unread, 'other text')} in it {are} not read ({listed}; data.suffixes chooses)",)
    if classes := _classes(texts):
        listed = ", ".join(list(classes)[:5]) + (" …" if len(classes) > 5 else "")
        seen += (
            f"their folders are not learned as classes ({listed}); to learn them, write a table with a text and a label in "
            "each row",
        )
    return of_splits("lm", more, listing.place, texts, "text", seen)


def _detection(listing: Listing, images: list[PurePosixPath]) -> tuple[tuple[str, ...], str]:
    """Sizes for the recipe `detect`: images of at most 192 pixels, in patches with a stem of convolutions."""
    height, width, channels = picture_sizes(listing, images)
    scale = min(1.0, 192 / max(height, width))
    patch = 8 if max(height, width) * scale <= 96 else 16
    rows, columns = (max(patch, round(side * scale / patch) * patch) for side in (height, width))
    stem = [16, 32, 64] if patch == 8 else [16, 32, 64, 96]
    tokens = 16 * (rows // patch * (columns // patch) + 1)
    settings = (
        f"model.image=[{rows},{columns}]",
        f"model.patch=[{patch},{patch}]",
        f"model.stem=[{','.join(map(str, stem))}]",
        f"model.channels={channels}",
        f"batching.tokens={tokens}",
    )
    return settings, f"images of about {height} × {width} pixels, resized to {rows} × {columns} (model.image)"


def picture_sizes(listing: Listing, images: list[PurePosixPath]) -> tuple[int, int, int]:
    """The median height and width of some images, and 3 channels if one of them has colors, else 1."""
    need("reading a picture", "PIL")
    from PIL import Image

    sizes, colors = [], False
    for content in listing.opened(images):
        with suppress(Exception), Image.open(io.BytesIO(content)) as image:  # training skips damaged files too
            turned = image.format != "TIFF" and image.getexif().get(ORIENTATION, UPRIGHT) >= SWAPPED
            sizes.append(image.size[::-1] if turned else image.size)  # Pillow gives that of a turned TIFF
            colors |= image.mode not in ("1", "L", "LA", "I", "F", "I;16")
    if not sizes:
        return 32, 32, 3
    return round(median(h for _, h in sizes)), round(median(w for w, _ in sizes)), 3 if colors else 1


def _n_animated(listing: Listing, images: list[PurePosixPath]) -> int:
    """Return how many of the first 8 images have several frames. Images that can't be opened don't count against the others:
    if all others have several, return the number of all."""
    if not any(name.suffix.lower() in (".gif", ".webp", ".png", ".apng") for name in images):
        return 0
    need("reading a picture", "PIL")
    from PIL import Image

    frames = []
    for content in listing.opened(images[:8]):
        with suppress(Exception), Image.open(io.BytesIO(content)) as image:
            frames.append(getattr(image, "n_frames", 1))
    return len(images[:8]) if frames and min(frames) > 1 else sum(count > 1 for count in frames)
