r"""How byte-level BPE cuts text into words before merging: the names that llama.cpp has for it, as regular expressions.

A file says only a name (`tokenizer.ggml.pre`), and llama.cpp has the expressions in its code. Each in turn cuts what the
earlier ones left; what matches is a separate piece, and so is what stands between. Names with the same expressions differ
in `ignore_merges`: a word that is in the vocabulary is then one token whatever its merges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .....data.tokenizers.readers.tiktoken import GPT2_WORDS, GPT4_WORDS, GPT4O_WORDS
from .....data.tokenizers.readers.vocab_files import QWEN2_WORDS

_THREE = "[0-9][0-9][0-9]"
_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
_FALCON = r"[\p{P}\$\+<=>\^~\|`]+"
_OLDEST = (r"[\p{P}\$\+<=>\^~\|]+", GPT2_WORDS, r"\p{N}+", _THREE)


@dataclass(frozen=True)
class NamedExpressions:
    """The expressions of a name, in order."""

    regexes: tuple[str, ...]
    ignore_merges: bool = False


_GPT2, _DIGITS = NamedExpressions((GPT2_WORDS,)), NamedExpressions((r"\p{N}", GPT2_WORDS))
NAMES: dict[str, NamedExpressions] = {
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "modern-bert"), _GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), _DIGITS),
    **dict.fromkeys(
        ("qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "solar-open"), NamedExpressions((QWEN2_WORDS,))
    ),
    "llama-bpe": NamedExpressions((GPT4_WORDS,), ignore_merges=True),
    **dict.fromkeys(
        ("llama3", "llama-v3", "falcon3", "pixtral", "lfm2"), NamedExpressions((GPT4_WORDS,), ignore_merges=True)
    ),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe"), NamedExpressions((GPT4_WORDS,))),
    **dict.fromkeys(("gpt-4o", "llama4"), NamedExpressions((GPT4O_WORDS,))),
    "falcon": NamedExpressions((_FALCON, GPT2_WORDS, _THREE)),
    **dict.fromkeys(("bloom", "poro-chat", "gpt3-finnish"), NamedExpressions((_BLOOM,))),
    "default": NamedExpressions(_OLDEST),
}
_ADDS_BOS = ("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "lfm2", "tekken")
"""Names with which llama.cpp begins a text with the beginning-of-sequence token if the file doesn't say whether."""


def adds_bos(name: str) -> bool:
    return name in _ADDS_BOS


def name_of(pre_tokenizer: object, ignore_merges: bool) -> str | None:
    """The name for the pre-tokenizer of a tokenizer.json; None if llama.cpp has none."""
    regexes = _regexes(pre_tokenizer)
    for name, words in NAMES.items():
        if regexes == words.regexes and words.ignore_merges == ignore_merges and name != "default":
            return name
    if ignore_merges and regexes is not None:  # nothing is lost where every word of the vocabulary has its merges
        return name_of(pre_tokenizer, False)
    return None


def pipeline_of(name: str) -> dict[str, Any]:
    """The pre-tokenizer of a tokenizer.json that cuts as a name says."""
    regexes = NAMES[name].regexes
    if regexes == (GPT2_WORDS,):
        return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    splits = [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False} for regex in regexes
    ]
    last = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"type": "Sequence", "pretokenizers": [*splits, last]}


def _regexes(pre_tokenizer: Any) -> tuple[str, ...] | None:
    """The expressions of a pre-tokenizer that ends in bytes; None if it does anything else."""
    steps = _flat(pre_tokenizer)
    regexes: list[str] = []
    bytes_at = None
    for i, step in enumerate(steps):
        kind = step.get("type")
        if kind == "ByteLevel" and not step.get("add_prefix_space") and bytes_at is None:
            regexes += [GPT2_WORDS] if step.get("use_regex", True) else []
            bytes_at = i
        elif kind == "Digits":
            regexes.append(r"\p{N}" if step.get("individual_digits") else r"\p{N}+")
        elif kind == "Punctuation" and step.get("behavior") == "Contiguous":
            regexes.append(_FALCON)
        elif kind == "Split" and _cuts_names(step):
            continue
        elif kind == "Split" and step.get("behavior") == "Isolated" and not step.get("invert"):
            regexes.append((step.get("pattern") or {}).get("Regex", ""))
        else:
            return None
    if bytes_at is None:
        return None
    return tuple(_SPELLINGS.get(regex, regex) for regex in regexes if regexes != [] and regex not in _IDLE)


def _flat(step: Any) -> list[dict[str, Any]]:
    if not isinstance(step, dict):
        return []
    if step.get("type") == "Sequence":
        return [inner for part in step.get("pretokenizers") or [] for inner in _flat(part)]
    return [step]


def _cuts_names(step: dict[str, Any]) -> bool:
    """Whether a step only keeps control tokens from being read from text (`tokenizers.pipelines.close_holes`)."""
    return step.get("behavior") == "MergedWithPrevious"


_IDLE = (r"\p{N}+",)
"""Runs of digits, which GPT-2's expression cuts already (Falcon)."""
_SPELLINGS = {
    r" ?[^(\s|[.,!?…。，、।۔،])]+": _BLOOM,
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
    + GPT4_WORDS.removeprefix("(?i:'s|'t|'re|'ve|'m|'ll|'d)"): GPT4_WORDS,
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+": QWEN2_WORDS,
}
"""Other spellings of the same expressions."""
