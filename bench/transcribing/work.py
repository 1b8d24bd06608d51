"""What is transcribed and by what: a Whisper of tiny's size with random weights in the Hub's format, and sound."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..contenders.loading import FOLDER
from ..translating.work import spread

RATE = 16_000
WINDOW = 30  # seconds
TEXT = 50_257  # tokens of text, as in Whisper; special tokens and timestamps follow
TINY: dict[str, Any] = {"d_model": 64, "n_layers": 2, "n_heads": 2, "d_ff": 128}


def model(tiny: bool = False) -> Path:
    """The directory of the Hub; it is made if it isn't there yet."""
    place = FOLDER / "transcribing" / ("whisper-tiny" + ("-small" if tiny else ""))
    if not (place / "config.json").exists():
        import qkv

        module = qkv.build(qkv.preset("whisper-tiny", **(TINY if tiny else {})), seed=0)
        spread(module, pad=TEXT)
        unfinished = place.with_name(place.name + ".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        module.save(unfinished, to="hub")
        write_tokenizer(unfinished)
        unfinished.rename(place)
    return place


def write_tokenizer(folder: Path) -> None:
    """Whisper's special tokens around words without meaning, and the settings of features and generation."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    from qkv.runs.inference.transcribe.languages import CODES

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [
        *letters,
        *(f"Ġw{i}" for i in range(TEXT - len(letters) - 1)),
        "",
    ]  # multilingual ones end with an empty word
    raw = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, []))
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    languages = [code for code in dict.fromkeys(CODES.values()) if code != "yue"]
    names = ["endoftext", "startoftranscript", *languages, "translate", "transcribe", "startoflm", "startofprev"]
    special = [f"<|{name}|>" for name in (*names, "nospeech", "notimestamps")]
    raw.add_special_tokens([AddedToken(name, special=True) for name in special])
    raw.add_tokens([AddedToken(f"<|{i / 50:.2f}|>", special=False) for i in range(1501)])
    raw.save(str(folder / "tokenizer.json"))
    ids = {name: TEXT + i for i, name in enumerate(special)}
    write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "WhisperTokenizer",
            "bos_token": special[0],
            "eos_token": special[0],
            "unk_token": special[0],
            "additional_special_tokens": special[1:],
        },
    )
    write(
        folder / "preprocessor_config.json",
        {
            "feature_extractor_type": "WhisperFeatureExtractor",
            "feature_size": 80,
            "sampling_rate": RATE,
            "n_fft": 400,
            "hop_length": 160,
            "chunk_length": WINDOW,
            "n_samples": WINDOW * RATE,
            "nb_max_frames": 3000,
        },
    )
    end, start = ids["<|endoftext|>"], ids["<|startoftranscript|>"]
    special_ids = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end, "decoder_start_token_id": start}
    write(folder / "config.json", special_ids, without=("qkv",))  # as other libraries write it
    write(
        folder / "generation_config.json",
        {
            **special_ids,
            "is_multilingual": True,
            "lang_to_id": {f"<|{code}|>": ids[f"<|{code}|>"] for code in languages},
            "task_to_id": {task: ids[f"<|{task}|>"] for task in ("transcribe", "translate")},
            "no_timestamps_token_id": ids["<|notimestamps|>"],
            "prev_sot_token_id": ids["<|startofprev|>"],
            "suppress_tokens": suppressed(),
            "begin_suppress_tokens": [],
            "max_length": 448,
        },
    )


def suppressed() -> list[int]:
    """Tokens that are never written: all but text, also the end, so all libraries write equally many tokens."""
    return list(range(TEXT, 51_865))


def write(path: Path, content: dict[str, Any], without: tuple[str, ...] = ()) -> None:
    """Write an object of JSON over what the file holds, without some of its keys."""
    old = json.loads(path.read_text()) if path.exists() else {}
    old = {key: value for key, value in old.items() if key not in without}
    path.write_text(json.dumps(old | content, indent=2))


def sound(windows: int) -> NDArray[np.float32]:
    """Tones and noise that come and go, for some windows."""
    random = np.random.default_rng(0)
    time = np.arange(windows * WINDOW * RATE) / RATE
    pitch = np.repeat(random.uniform(90, 400, windows * WINDOW * 8), RATE // 8)
    loud = np.repeat(random.uniform(0, 0.4, windows * WINDOW * 8), RATE // 8)
    wave = loud * np.sin(2 * np.pi * np.cumsum(pitch) / RATE) + 0.02 * random.normal(size=len(time))
    return wave.astype(np.float32)
