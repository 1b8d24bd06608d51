"""Tokenizer families of the Hub: special tokens, templates and flags that their files leave out.

`transformers` keeps these in the code of the class that a folder names (`tokenizer_class` in tokenizer_config.json, or
`model_type` in config.json). Here each family is a row of a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Files = Literal["vocab.txt", "merges", "sentencepiece", "characters"]
Template = Literal["cls-sep", "cls-eos", "roberta", "bos-eos", "language-eos", "eos-language", "flags"]

GENERIC = ("PreTrainedTokenizer", "TokenizersBackend", "Tokenizer", "")
"""Classes without their own defaults: the files are complete."""


@dataclass(frozen=True)
class TokenizerFamily:
    """A family of tokenizers that share a file format and defaults.

    classes:     names in `transformers`, without `Fast`.
    model_types: names in config.json.
    roles:       the special tokens that the configuration need not name.
    template:    the special tokens around a text: `[CLS] … [SEP]`; ESM's `<cls> … <eos>`; RoBERTa's `<s> … </s>`; CLIP's
                 two; a language token before the text or after `</s>`; or `flags`: the tokens that `add_bos_token` and
                 `add_eos_token` turn on.
    adds:        the defaults of these two flags.
    eats_space:  the mask token includes the space before it.
    sentinels:   the default number of `<extra_id_…>` after the vocabulary.
    language:    the language of texts, unless the configuration has `src_lang`.
    legacy:      whether `legacy_behaviour` in the configuration moves the language behind `</s>` (NLLB).
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
    language: str = ""
    legacy: bool = False


_END_OF_TEXT = "<|endoftext|>"
_BRACKETS = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
_EOS_UNK_PAD = {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"}
_SLASHED = {"bos": "<s>", **_EOS_UNK_PAD}
_ROBERTA = {**_SLASHED, "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
_CLS_SEP_MASK = {"cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}

_BERT_CLASSES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")
_BERT_MODELS = ("bert", "distilbert", "electra", "nomic_bert")
BERT = TokenizerFamily("bert", "vocab.txt", _BERT_CLASSES, _BERT_MODELS, _BRACKETS, "cls-sep")

MPNET = TokenizerFamily(
    "mpnet", "vocab.txt", ("MPNetTokenizer",), ("mpnet",), {**_ROBERTA, "unk": "[UNK]"}, "roberta", eats_space=True
)
_ESM_ROLES = {"cls": "<cls>", "eos": "<eos>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask>"}
ESM = TokenizerFamily("esm", "vocab.txt", ("EsmTokenizer",), ("esm",), _ESM_ROLES, "cls-eos")

_GPT2_MODELS = ("gpt2", "gpt_neo", "gptj", "gpt_bigcode", "gpt_neox", "opt")
_GPT2_ROLES = {"unk": _END_OF_TEXT, "bos": _END_OF_TEXT, "eos": _END_OF_TEXT}
GPT2 = TokenizerFamily("gpt2", "merges", ("GPT2Tokenizer", "GPTNeoXTokenizer"), _GPT2_MODELS, _GPT2_ROLES)

_BART_CLASSES = ("RobertaTokenizer", "BartTokenizer", "LongformerTokenizer", "LEDTokenizer")
_BART_MODELS = ("roberta", "bart", "longformer", "led")
ROBERTA = TokenizerFamily("roberta", "merges", _BART_CLASSES, _BART_MODELS, _ROBERTA, "roberta", eats_space=True)

_CLIP_ROLES = {"unk": _END_OF_TEXT, "bos": "<|startoftext|>", "eos": _END_OF_TEXT, "pad": _END_OF_TEXT}
CLIP = TokenizerFamily("clip", "merges", ("CLIPTokenizer",), ("clip", "clip_text_model"), _CLIP_ROLES, "bos-eos")

_QWEN2_MODELS = ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe")
_QWEN2_ROLES = {"unk": _END_OF_TEXT, "eos": _END_OF_TEXT, "pad": _END_OF_TEXT}
QWEN2 = TokenizerFamily("qwen2", "merges", ("Qwen2Tokenizer",), _QWEN2_MODELS, _QWEN2_ROLES)

_T5_CLASSES, _T5_MODELS = ("T5Tokenizer", "MT5Tokenizer"), ("t5", "mt5", "umt5")
T5 = TokenizerFamily("t5", "sentencepiece", _T5_CLASSES, _T5_MODELS, _EOS_UNK_PAD, adds=(False, True), sentinels=100)

_LLAMA_MODELS, _LLAMA_ROLES = ("llama", "mistral", "mixtral", "phi3"), {"bos": "<s>", "eos": "</s>", "unk": "<unk>"}
LLAMA = TokenizerFamily("llama", "sentencepiece", ("LlamaTokenizer",), _LLAMA_MODELS, _LLAMA_ROLES, adds=(True, False))

_GEMMA_ROLES = {"bos": "<bos>", "eos": "<eos>", "unk": "<unk>", "pad": "<pad>"}
GEMMA = TokenizerFamily(
    "gemma", "sentencepiece", ("GemmaTokenizer",), ("gemma", "gemma2"), _GEMMA_ROLES, adds=(True, False)
)

_BIG_BIRD_ROLES = {**_SLASHED, **_CLS_SEP_MASK}
BIG_BIRD = TokenizerFamily(
    "big_bird", "sentencepiece", ("BigBirdTokenizer",), ("big_bird",), _BIG_BIRD_ROLES, "cls-sep", eats_space=True
)
MARIAN = TokenizerFamily("marian", "sentencepiece", ("MarianTokenizer",), ("marian",), _EOS_UNK_PAD, adds=(False, True))
XLM_ROBERTA = TokenizerFamily(
    "xlm-roberta", "sentencepiece", ("XLMRobertaTokenizer",), ("xlm-roberta",), _ROBERTA, "roberta"
)
CAMEMBERT = TokenizerFamily(
    "camembert", "sentencepiece", ("CamembertTokenizer",), ("camembert",), _ROBERTA, "roberta", eats_space=True
)
MBART = TokenizerFamily(
    "mbart",
    "sentencepiece",
    ("MBartTokenizer",),
    ("mbart",),
    _ROBERTA,
    "eos-language",
    eats_space=True,
    language="en_XX",
)
MBART_50 = TokenizerFamily(
    "mbart-50", "sentencepiece", ("MBart50Tokenizer",), (), _ROBERTA, "language-eos", eats_space=True, language="en_XX"
)
NLLB = TokenizerFamily(
    "nllb",
    "sentencepiece",
    ("NllbTokenizer",),
    (),
    _ROBERTA,
    "language-eos",
    eats_space=True,
    language="eng_Latn",
    legacy=True,
)
M2M_100 = TokenizerFamily(
    "m2m-100",
    "sentencepiece",
    ("M2M100Tokenizer",),
    ("m2m_100",),
    {**_SLASHED, "sep": "</s>"},
    "language-eos",
    language="en",
)
FAIRSEQ = (CAMEMBERT, MBART, MBART_50, NLLB, M2M_100)
_ALBERT_ROLES = {"bos": "[CLS]", "eos": "[SEP]", "unk": "<unk>", "pad": "<pad>", **_CLS_SEP_MASK}
ALBERT = TokenizerFamily("albert", "sentencepiece", ("AlbertTokenizer",), ("albert",), _ALBERT_ROLES, "cls-sep")

_SIGLIP_MODELS, _SIGLIP_ROLES = ("siglip", "siglip_text_model"), {"eos": "</s>", "unk": "<unk>", "pad": "</s>"}
SIGLIP = TokenizerFamily(
    "siglip", "sentencepiece", ("SiglipTokenizer",), _SIGLIP_MODELS, _SIGLIP_ROLES, adds=(False, True)
)

WAV2VEC2 = TokenizerFamily("wav2vec2", "characters", ("Wav2Vec2CTCTokenizer",), ("wav2vec2", "hubert"), _SLASHED)

FAMILIES = (
    BERT,
    MPNET,
    ESM,
    GPT2,
    ROBERTA,
    CLIP,
    QWEN2,
    T5,
    LLAMA,
    GEMMA,
    BIG_BIRD,
    MARIAN,
    XLM_ROBERTA,
    *FAIRSEQ,
    ALBERT,
    SIGLIP,
    WAV2VEC2,
)
BY_CLASS = {name: family for family in FAMILIES for name in family.classes}
BY_MODEL_TYPE = {name: family for family in FAMILIES for name in family.model_types}
