"""Defaults of published tokenizer families that their files leave out: special tokens, templates, pre-tokenizers.

Libraries keep these in the code of a class that the folder names (`tokenizer_class` in tokenizer_config.json, or
`model_type` in config.json). Here each is a row of a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Files = Literal["vocab.txt", "merges", "sentencepiece"]
Template = Literal["cls-sep", "roberta", "bos-eos", "flags"]

GENERIC = ("PreTrainedTokenizer", "TokenizersBackend", "Tokenizer", "")
"""Classes that say nothing: all there is to know stands in the files."""


@dataclass(frozen=True)
class Family:
    """One way to write a tokenizer to files.

    classes:        of `transformers`, without their `Fast`.
    model_types:    of config.json.
    roles:          the special tokens where the configuration names none.
    template:       what is put around a text: `[CLS] … [SEP]`; RoBERTa's `<s> … </s>`; CLIP's two; or `flags`: what
                    `add_bos_token` and `add_eos_token` say.
    adds:           those two flags where the configuration has none.
    eats_space:     the mask token takes the space before it along.
    sentinels:      how many `<extra_id_…>` follow the vocabulary, where the configuration does not say.
    """

    name: str
    files: Files
    classes: tuple[str, ...]
    model_types: tuple[str, ...]
    roles: Mapping[str, str]
    template: Template = "flags"
    adds: tuple[bool, bool] = (False, False)
    eats_space: bool = False
    sentinels: int = 0


_BRACKETS = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
_SLASHED = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "pad": "<pad>"}
_END_OF_TEXT = "<|endoftext|>"

BERT = Family(
    "bert",
    "vocab.txt",
    ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"),
    ("bert", "distilbert", "electra"),
    _BRACKETS,
    "cls-sep",
)
GPT2 = Family(
    "gpt2",
    "merges",
    ("GPT2Tokenizer", "GPTNeoXTokenizer"),
    ("gpt2", "gpt_neo", "gptj", "gpt_bigcode", "gpt_neox", "opt"),
    {"unk": _END_OF_TEXT, "bos": _END_OF_TEXT, "eos": _END_OF_TEXT},
)
ROBERTA = Family(
    "roberta",
    "merges",
    ("RobertaTokenizer", "BartTokenizer", "LongformerTokenizer", "LEDTokenizer"),
    ("roberta", "bart", "longformer", "led"),
    {**_SLASHED, "cls": "<s>", "sep": "</s>", "mask": "<mask>"},
    "roberta",
    eats_space=True,
)
CLIP = Family(
    "clip",
    "merges",
    ("CLIPTokenizer",),
    ("clip", "clip_text_model"),
    {"unk": _END_OF_TEXT, "bos": "<|startoftext|>", "eos": _END_OF_TEXT, "pad": _END_OF_TEXT},
    "bos-eos",
)
QWEN2 = Family(
    "qwen2",
    "merges",
    ("Qwen2Tokenizer",),
    ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"),
    {"unk": _END_OF_TEXT, "eos": _END_OF_TEXT, "pad": _END_OF_TEXT},
)
T5 = Family(
    "t5",
    "sentencepiece",
    ("T5Tokenizer", "MT5Tokenizer"),
    ("t5", "mt5", "umt5"),
    {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
    adds=(False, True),
    sentinels=100,
)
LLAMA = Family(
    "llama",
    "sentencepiece",
    ("LlamaTokenizer",),
    ("llama", "mistral", "mixtral", "phi3"),
    {"bos": "<s>", "eos": "</s>", "unk": "<unk>"},
    adds=(True, False),
)
GEMMA = Family(
    "gemma",
    "sentencepiece",
    ("GemmaTokenizer",),
    ("gemma", "gemma2"),
    {"bos": "<bos>", "eos": "<eos>", "unk": "<unk>", "pad": "<pad>"},
    adds=(True, False),
)
BIG_BIRD = Family(
    "big_bird",
    "sentencepiece",
    ("BigBirdTokenizer",),
    ("big_bird",),
    {**_SLASHED, "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
    "cls-sep",
    eats_space=True,
)
MARIAN = Family(
    "marian",
    "sentencepiece",
    ("MarianTokenizer",),
    ("marian",),
    {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
    adds=(False, True),
)

XLM_ROBERTA = Family(
    "xlm-roberta",
    "sentencepiece",
    ("XLMRobertaTokenizer",),
    ("xlm-roberta",),
    {**_SLASHED, "cls": "<s>", "sep": "</s>", "mask": "<mask>"},
    "roberta",
)
ALBERT = Family(
    "albert",
    "sentencepiece",
    ("AlbertTokenizer",),
    ("albert",),
    {"bos": "[CLS]", "eos": "[SEP]", "unk": "<unk>", "pad": "<pad>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
    "cls-sep",
)

FAMILIES = (BERT, GPT2, ROBERTA, CLIP, QWEN2, T5, LLAMA, GEMMA, BIG_BIRD, MARIAN, XLM_ROBERTA, ALBERT)
BY_CLASS = {name: family for family in FAMILIES for name in family.classes}
BY_MODEL_TYPE = {name: family for family in FAMILIES for name in family.model_types}
