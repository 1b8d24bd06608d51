"""`qkv transcribe`: what is said in sounds and videos, as text, subtitles or JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Device, JsonLines, Overwrite, RunPath
from .say import echo
from .texts import dumps, load_run

if TYPE_CHECKING:
    from ..runs.inference.transcribe import Transcript


def transcribe(
    run: RunPath,
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="Sounds, videos, or folders of them; `-` is a sound on standard input."),
    ],
    srt: Annotated[bool, typer.Option("--srt", help="Write subtitles as SubRip.")] = False,
    vtt: Annotated[bool, typer.Option("--vtt", help="Write subtitles as WebVTT.")] = False,
    json: JsonLines = False,
    words: Annotated[bool, typer.Option("--words", help="Give the time of each word.")] = False,
    language: Annotated[
        str | None, typer.Option(metavar="LANGUAGE", help="The language, such as `de` or `german`. [default: detected]")
    ] = None,
    translate: Annotated[bool, typer.Option("--translate", help="Translate the speech to English.")] = False,
    num_beams: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Beams of the search. [default: the model's]")
    ] = None,
    lm: Annotated[
        str | None,
        typer.Option(
            "--lm",
            metavar="LM",
            help="For runs of recognize-ctc: an ARPA file of n-grams, or a language model's directory.",
        ),
    ] = None,
    lm_weight: Annotated[
        float | None, typer.Option(metavar="N", min=0, help="The weight of the language model. [default: the run's]")
    ] = None,
    word_bonus: Annotated[
        float | None,
        typer.Option(metavar="N", help="A bonus that is added to the score for each word. [default: the run's]"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write a file for each sound: `.txt`, or `.srt`, `.vtt` or `.json`."),
    ] = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Transcribe speech with Whisper, or with a run of speech recognition.

    Every format of libsndfile is read (WAV, FLAC, Ogg, MP3, AIFF …) at any rate, and the sound track of videos.
    """
    kinds = [name for name, wanted in (("srt", srt), ("vtt", vtt), ("json", json)) if wanted]
    if len(kinds) > 1:
        raise ValueError(f"give one of --{' and --'.join(kinds)}: the output has one format")
    kind = kinds[0] if kinds else "txt"
    found = list(sounds_in(files))
    if kind in ("srt", "vtt") and len(found) > 1 and out is None:
        raise ValueError(f"subtitles are of one sound, and there are {len(found):,}; add --out DIR for a file of each")
    writes = None if out is None else _claimed(out, found, kind, overwrite)
    loaded = load_run(run, "transcribe", device)
    task = "translate" if translate else "transcribe"
    options: dict[str, Any] = {"language": language, "task": task, "words": words, "num_beams": num_beams}
    options |= {"lm": lm, "lm_weight": lm_weight, "word_bonus": word_bonus}
    for name in found:
        heard = loaded.transcribe(sys.stdin.buffer.read() if name == "-" else name, **options)
        text = _shown(heard, name, kind, words, several=len(found) > 1 and out is None)
        if writes is None:
            echo(text)
        else:
            from ..core.atomic import make_folder, write_file

            make_folder(writes[name].parent)
            write_file(writes[name], f"{text}\n".encode())
            echo(str(writes[name]))


def sounds_in(files: list[str]) -> Iterator[str]:
    """The files, and those with sound in the folders. Raises ValueError for a folder without any, and for several `-`."""
    from ..data.file_kinds import files_below
    from ..data.media.video import SUFFIXES as VIDEOS
    from ..data.readers.audio import SUFFIXES as SOUNDS

    if files.count("-") > 1:
        raise ValueError("standard input is one sound; give `-` once")
    for file in files:
        folder = Path(file).expanduser()
        if file == "-" or not folder.is_dir():
            yield file
            continue
        inside = files_below(folder, SOUNDS | VIDEOS)
        if not inside:
            raise ValueError(f"there is no sound or video in the folder {file}, such as a .wav or .mp4")
        yield from map(str, inside)


def _shown(heard: Transcript, name: str, kind: str, words: bool, several: bool) -> str:
    if kind == "json":
        return dumps({**heard.to_dict(), "input": name})
    if kind == "srt" or kind == "vtt":
        return heard.subtitles(kind, words).rstrip("\n")  # type: ignore[arg-type]
    if words:
        lines = [f"{word.start:.2f}\t{word.end:.2f}\t{word.text.strip()}" for word in heard.words]
        return "\n".join([f"{name}:", *lines] if several else lines)
    return f"{name}: {heard.text}" if several else heard.text


def _claimed(folder: Path, names: list[str], kind: str, overwrite: bool) -> dict[str, Path]:
    """The output file of each sound, which must be free. Raises ValueError if two have one name, and for a folder that is a
    run or a model."""
    from ..core.atomic import claim
    from ..io.directories.layout import claim_folder

    claim_folder(folder, None)
    paths = {name: folder / f"{'stdin' if name == '-' else Path(name).stem}.{kind}" for name in names}
    if len(set(paths.values())) < len(names):
        raise ValueError("two sounds have the same name; transcribe them one by one, each with its own --out")
    for path in paths.values():
        claim(path, overwrite)
    return paths
