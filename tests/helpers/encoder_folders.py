"""Directories of tiny encoders with tokenizers of their families: BERT, Nomic BERT, XLM-RoBERTa."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from qkv.data.tokenizers.tokenizer import Tokenizer
from qkv.io.directories.build import build
from qkv.io.families import preset
from qkv.runs.inference.run import Run

KINDS = ("bert", "nomic", "xlm-roberta")
TEXTS = [
    "the cat's hats, and 12345 mats!",
    "naïve Straße x",
    "  two  spaces\n\tand",
    "hello world unaffable",
    "query: a b",
]
CORPUS = [*TEXTS * 3, *["The quick brown fox jumps over the lazy dog"] * 5]
PRESETS = {"bert": "bert-base", "nomic": "nomic-bert", "xlm-roberta": "xlm-roberta-base"}
SIZES: dict[str, Any] = {"d_model": 64, "n_layers": 2, "n_heads": 4, "d_ff": 96, "max_positions": 64}
BRACKETS = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}


def encoder(
    kind: str,
    folder: Path,
    *,
    lowercase: bool = True,
    head: bool = False,
    pooling: str | None = None,
    modules: tuple[str, ...] = (),
    settings: dict[str, Any] | None = None,
) -> Path:
    """A directory of the Hub; with a pooling, one of sentence-transformers, and `settings` are those of its files."""
    words = folder.with_name(f"{folder.name}-words")
    tokenizer = _unigram(words) if kind == "xlm-roberta" else _wordpiece(words, lowercase)
    sizes = {
        **SIZES,
        "vocab_size": tokenizer.vocab_size,
        "head": head,
        **({"labels": 0} if kind == "bert" and not head else {}),
    }
    model = build(preset(PRESETS[kind], **sizes), seed=3).eval()
    for i, parameter in enumerate(model.parameters()):
        parameter.data.add_(0.02 * ((i % 5) + 1) * (parameter.data * 50 + i).cos())  # no two tensors alike
    Run(model, None, task="read").save(folder, to="hub")
    for file in words.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    config |= {"pad_token_id": tokenizer.pad_id}
    del config["qkv"]  # as it comes from elsewhere
    (folder / "config.json").write_text(json.dumps(config))
    if pooling is not None:
        _sentences(folder, pooling, modules, settings or {})
    return folder


def _sentences(folder: Path, pooling: str, modules: tuple[str, ...], settings: dict[str, Any]) -> None:
    names = ("Transformer", "Pooling", *modules)
    paths = ("", *(f"{i}_{name}" for i, name in enumerate(names[1:], 1)))
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (name, path) in enumerate(zip(names, paths, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir()
    pools = {"word_embedding_dimension": SIZES["d_model"], "pooling_mode": pooling}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pools))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))


def _wordpiece(folder: Path, lowercase: bool) -> Tokenizer:
    raw = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    raw.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    raw.train_from_iterator(
        CORPUS, trainers.WordPieceTrainer(vocab_size=96, special_tokens=special, show_progress=False)
    )
    pair = "[CLS] $A [SEP] $B:1 [SEP]:1"
    raw.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", pair, [("[CLS]", 2), ("[SEP]", 3)])
    folder.mkdir(parents=True)
    raw.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", **BRACKETS}))
    return Tokenizer.load(folder)


def _unigram(folder: Path) -> Tokenizer:
    """XLM-RoBERTa's, with only the model of sentencepiece."""
    import pytest

    sentencepiece = pytest.importorskip("sentencepiece")
    folder.mkdir(parents=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 4),
        model_prefix=str(folder / "sentencepiece.bpe"),
        vocab_size=80,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (folder / "sentencepiece.bpe.vocab").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "XLMRobertaTokenizer"}))
    return Tokenizer.load(folder)
