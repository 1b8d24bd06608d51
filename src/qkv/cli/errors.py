"""What went wrong, as one sentence, and the exit status that it has."""

from __future__ import annotations

import errno
import lzma
import zipfile
import zlib

USER, BUG = 2, 1
INTERRUPTED = 130  # the shell's status of a program that Ctrl-C ended
_DAMAGED = (zlib.error, lzma.LZMAError, zipfile.BadZipFile, EOFError)


def describe(error: Exception) -> tuple[int, str]:
    """The exit status and the sentence for an exception that ended a command; no sentence where help was shown instead."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return USER, ""
    if hasattr(error, "format_message"):  # the command line itself was wrong
        return USER, _usage(error)
    if isinstance(error, OSError):
        return USER, _os(error)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or _no_memory(error):
        return USER, "out of memory; make batches smaller (batching.tokens), or the model"
    if isinstance(error, _DAMAGED):
        return USER, f"a compressed file is damaged or ends too early ({str(error).rstrip('.').lower()})"
    if isinstance(error, ValueError):
        return USER, _sentence(error)
    text = str(error).strip().split("\n")[0]
    return BUG, (
        f"a bug in qkv, or something it did not expect: {type(error).__name__}: {text} "
        "(QKV_DEBUG=1 shows where; please report it)"
    )


def _no_memory(error: Exception) -> bool:
    """PyTorch on a CPU, and C++ beneath it, have no exception of their own for an allocation that fails."""
    text = str(error)
    return isinstance(error, RuntimeError) and any(
        said in text for said in ("can't allocate memory", "not enough memory", "bad_alloc", "out of memory")
    )


def _usage(error: Exception) -> str:
    message = str(error.format_message()).replace("Value error, ", "").strip()  # type: ignore[attr-defined]
    message = message[:1].lower() + message[1:].rstrip(".") if not message.startswith("'") else message.rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{message} (see `{context.command_path} --help`)" if context is not None else message


def _os(error: OSError) -> str:
    if error.errno is None:
        return str(error)
    reason = {
        errno.ENOENT: "there is no such file or directory",
        errno.ENOSPC: "the disk is full; what was saved before is intact",
        errno.EDQUOT: "your disk quota is used up; what was saved before is intact",
        errno.EROFS: "this file system is read-only",
        errno.ENOTDIR: "a part of this path is a file, and a directory was expected",
        errno.EACCES: "permission denied",
        errno.EISDIR: "this is a directory, and a file was expected",
    }.get(error.errno, (error.strerror or str(error)).lower())
    return f"{error.filename}: {reason}" if error.filename is not None else reason


def _sentence(error: ValueError) -> str:
    if hasattr(error, "errors"):  # pydantic's, which would be several lines
        from ..core.spec import explain

        return explain(error)  # type: ignore[arg-type]
    return " ".join(str(error).split()) or type(error).__name__
