"""Turn exceptions into a one-sentence message and an exit status."""

from __future__ import annotations

import errno
import lzma
import re
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

from ..runs.recipes.imports import imported

USER, BUG = 2, 1
INTERRUPTED = 130  # the shell's status of a program that was ended by Ctrl-C
_LONGEST_WORD, _LONGEST = 400, 4000  # characters of a message
_WORD = re.compile(rf"\S{{{_LONGEST_WORD + 1},}}")
_DAMAGED = (zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.ReadError, EOFError)


def describe(error: Exception) -> tuple[int, str]:
    """The exit status and message of an exception that ended a command; the message is empty if help was printed."""
    status, text = _described(error)
    return status, shortened(text)


def shortened(text: str) -> str:
    """A message in which long words (of what it quotes: a value, a path, a token) and a long whole lose their middle."""
    words = _WORD.sub(lambda word: _without_middle(word[0], _LONGEST_WORD // 4), text)
    return words if len(words) <= _LONGEST else _without_middle(words, _LONGEST // 2)


def _without_middle(text: str, kept: int) -> str:
    return f"{text[:kept]} … {len(text) - 2 * kept:,} characters … {text[-kept:]}"


def _described(error: Exception) -> tuple[int, str]:
    if type(error).__name__ == "NoArgsIsHelpError":
        return USER, ""
    if hasattr(error, "format_message"):  # a wrong option or argument
        advice = _other_name(error) if hasattr(error, "option_name") else None
        return USER, _usage(error, advice or str(error.format_message()))
    if isinstance(error, OSError) and not isinstance(error, ValueError):
        return USER, _os(error)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or _is_out_of_memory(error):
        return USER, "out of memory; use smaller batches (batching.tokens) or a smaller model"
    if isinstance(error, _DAMAGED):
        return USER, f"a compressed file is damaged or ends too early ({str(error).rstrip('.').lower()})"
    if isinstance(error, ValueError):
        return USER, _sentence(error)
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop from "):  # Python 3.11 and 3.12
        return USER, f"{str(error).removeprefix('Symlink loop from ')} is a link that leads back to itself; correct it"
    if type(error).__name__ == "RankLost":
        return BUG, str(error)
    text = str(error).strip().split("\n")[0]
    where = f"in {', '.join(imported)} or in qkv" if imported else "in qkv, or something it did not expect"
    report = "if it is in qkv, please report it" if imported else "please report it"
    return BUG, f"a bug {where}: {type(error).__name__}: {text} (QKV_DEBUG=1 shows where; {report})"


def _other_name(error: Any) -> str | None:
    """A message on an option that has another library's name, with qkv's; None if the name is unknown."""
    from ..core.synonyms import elsewhere

    command = None if error.ctx is None else error.ctx.command
    own = {
        name.lstrip("-").replace("-", "_"): name for option in getattr(command, "params", ()) for name in option.opts
    }
    advice = elsewhere(error.option_name, own)
    if advice is None:
        return None
    found = re.match(r"it is ([\w.]+) here(.*)", advice)
    if found and found[1] in own:
        advice = f"it is {own[found[1]]} here{found[2]}"
    elif found and "set_" in {option.name for option in getattr(command, "params", ())} and "generation." in found[1]:
        advice = f"it is --set {found[1].removeprefix('generation.')}=… here{found[2]}"
    elif found and getattr(command, "name", None) == "train":
        advice = f"it is the setting {found[1]}=… here{found[2]}"
    return f"there is no option {error.option_name}; {advice}"


def _is_out_of_memory(error: Exception) -> bool:
    """Whether an error is PyTorch's RuntimeError for an allocation that failed on the CPU; it has no separate type."""
    phrases = ("can't allocate memory", "not enough memory", "bad_alloc", "out of memory")
    return isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in phrases)


def _usage(error: Exception, message: str) -> str:
    message = message.replace("Value error, ", "").strip()
    message = message[:1].lower() + message[1:].rstrip(".") if not message.startswith("'") else message.rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{message} (see `{context.command_path.rstrip()} --help`)" if context is not None else message


def _os(error: OSError) -> str:
    if error.errno is None:
        return str(error)
    if error.errno == errno.ENOENT and error.filename is None and _left_directory():
        return "the working directory no longer exists; change to another one"
    reason = {
        errno.ENOENT: "there is no such file or directory",
        errno.ENOSPC: "the disk is full; what was saved before is intact",
        errno.EDQUOT: "your disk quota is used up; what was saved before is intact",
        errno.EFBIG: "the file is larger than this shell (ulimit -f) or file system allows; what was saved before is intact",
        errno.EROFS: "this file system is read-only",
        errno.ENOTDIR: "a part of this path is a file, and a directory was expected",
        errno.EACCES: "permission denied",
        errno.EISDIR: "this is a directory, and a file was expected",
    }.get(error.errno, (error.strerror or str(error)).lower())
    return f"{error.filename}: {reason}" if error.filename is not None else reason


def _left_directory() -> bool:
    """Whether the working directory was deleted."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _sentence(error: ValueError) -> str:
    if "surrogates not allowed" in str(error):
        return (
            "a name or a text has bytes that are not UTF-8, which can't be stored in settings; choose another name for the "
            "file or directory"
        )
    if hasattr(error, "errors"):  # pydantic's message would have several lines
        from pydantic import ValidationError

        from ..core.spec import explain

        assert isinstance(error, ValidationError)
        return explain(error)
    return " ".join(str(error).split()) or type(error).__name__
