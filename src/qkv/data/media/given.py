"""Pictures and sounds as users give them: files, the bytes of files, data addresses, arrays, and Pillow's pictures."""

from __future__ import annotations

import base64
import binascii
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...core.several import shown
from ...core.spec import brief, counted
from ..source import Skipped
from . import audio, images
from .audio import Wave
from .images import Color, Pixels

if TYPE_CHECKING:
    from .video import Sampled

_NAMED = 60  # characters of a name in a message


def name_of(value: object, noun: str) -> str:
    """What to call a picture or a sound in a message: its file, or "the picture"."""
    is_file = isinstance(value, str | os.PathLike) and not (isinstance(value, str) and value.startswith("data:"))
    return brief(str(value)[:_NAMED]) if is_file else f"the {noun}"


def picture(value: Any, color: Color = "rgb", bits: int = 16) -> Pixels:
    """The pixels (C, H, W), 0 … 255, of a picture: a file, its bytes, a `data:` address, a picture of Pillow, or an array
    of bytes (H, W), (C, H, W) or (H, W, C).

    Raises ValueError that names the file for what is no picture.
    """
    if hasattr(value, "getbands"):  # Pillow's
        file = io.BytesIO()
        value.save(file, "PNG")
        value = file.getvalue()
    if isinstance(value, bytes) or (isinstance(value, str) and value.startswith("data:")):
        pixels = images.decode(_content(value, "picture"), color, bits=bits, where="the picture")
        if isinstance(pixels, Skipped):
            raise ValueError(f"the picture can't be read: it is {pixels}")
        return pixels
    if isinstance(value, str | os.PathLike):
        return images.read(os.fspath(value), color, bits=bits)
    return _array(value)


def _array(value: Any) -> Pixels:
    array: NDArray[Any] = np.asarray(value) if hasattr(value, "__array__") else np.empty(0)
    if array.ndim == 2:
        array = array[None]
    if array.ndim == 3 and len(array) not in (1, 3) and array.shape[2] in (1, 3):
        array = array.transpose(2, 0, 1)
    if array.dtype != np.uint8 or array.ndim != 3 or not array.size:
        what = shown(value) if not array.size else f"an array of {array.dtype} {array.shape}"
        raise ValueError(
            "a picture is a file, its bytes, a picture of Pillow, or an array of bytes (height, width, channels), not "
            f"{what}"
        )
    return np.ascontiguousarray(array)


def sound(value: object) -> tuple[Wave, int]:
    """The waveform and the rate of a sound: a file, its bytes, a `data:` address, or a pair of a waveform and its rate.

    The sound of videos is read too. Raises ValueError that names the file for what holds no sound.
    """
    if isinstance(value, tuple) and len(value) == 2:
        found = checked_wave(*value)
    elif isinstance(value, str | bytes | os.PathLike):
        found = _heard(value)
    else:
        raise not_a_sound(value)
    if isinstance(found, Skipped):
        raise ValueError(f"{name_of(value, 'sound')} can't be read as a sound: it is {found}")
    return found


def not_a_sound(value: object) -> ValueError:
    """Return the error for a value that is not a sound; it lists the accepted forms."""
    return ValueError(
        f"a sound is a file, its bytes, or a pair of a waveform and its rate, (samples, 16000), not {shown(value)}"
    )


def video(
    value: Any, choose: Callable[[int, float], Sequence[int]], keep: Callable[[Pixels, int], Any], color: Color = "rgb"
) -> Sampled:
    """Pictures of a video that are chosen by their number and rate (`video.sampled`): of a file, its bytes, a `data:`
    address, or a pair of an array (pictures, height, width, channels) and how many there are in a second.

    Raises ValueError that names the file for what is no video.
    """
    from .video import Sampled, sampled

    if isinstance(value, tuple) and len(value) == 2:
        frames, rate = [_array(one) for one in np.asarray(value[0])], value[1]
        if type(rate) not in (int, float) or not (0 < rate < np.inf) or not frames:
            raise ValueError(
                f"a video is at least one picture and how many there are in a second, (pictures, 24), not "
                f"{counted(len(frames), 'picture')} and {brief(rate)}"
            )
        indices = list(choose(len(frames), float(rate)))
        return Sampled([keep(frames[i], len(indices)) for i in indices], indices, len(frames), float(rate))
    if not isinstance(value, str | bytes | os.PathLike):
        raise ValueError(
            f"a video is a file, its bytes, or a pair of pictures and how many there are in a second, (pictures, 24), not "
            f"{shown(value)}"
        )
    inside = isinstance(value, bytes) or (isinstance(value, str) and value.startswith("data:"))
    data = _content(value, "video") if inside else images.content(Path(value))  # type: ignore[arg-type]
    found = sampled(data, choose, keep, color, name_of(value, "video"))
    if isinstance(found, Skipped):
        raise ValueError(f"{name_of(value, 'video')} can't be read as a video: it is {found}")
    return found


def _heard(value: str | bytes | os.PathLike[str]) -> tuple[Wave, int] | Skipped:
    inside = isinstance(value, bytes) or (isinstance(value, str) and value.startswith("data:"))
    data = _content(value, "sound") if inside else images.content(Path(value))  # type: ignore[arg-type]
    return audio.decode(data, name_of(value, "sound"))


def checked_wave(wave: object, rate: object) -> tuple[Wave, int] | Skipped:
    """A waveform that is given as numbers, or why it is none. Raises ValueError for numbers of another shape or type."""
    samples = np.asarray(wave)
    if samples.ndim != 1 or samples.dtype.kind != "f":
        raise ValueError(
            f"a waveform is one row of floating-point samples from −1 to 1, not {samples.dtype} {samples.shape}; average "
            "the channels, and divide integers by their largest"
        )
    if type(rate) is not int or rate < 1:
        raise ValueError(f"the rate of a waveform is a whole number of samples per second, not {brief(rate)}")
    if not len(samples):
        return Skipped("without sound")
    if not np.isfinite(samples).all():
        return Skipped(f"of {counted(int((~np.isfinite(samples)).sum()), 'sample')} that are no numbers")
    return samples.astype(np.float32), rate


def _content(value: Any, noun: str) -> bytes:
    """The bytes of a file that is given by its bytes or by a `data:` address."""
    if isinstance(value, bytes):
        return value
    head, comma, body = str(value).partition(",")
    if not comma or not head.endswith(";base64"):
        raise ValueError(f"the {noun} is given by the address {brief(head[:40])}, and only data:…;base64,… is read")
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"the {noun} has a data: address that is not base64") from None
