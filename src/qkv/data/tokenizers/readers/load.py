"""Loads a tokenizer from any supported file or folder: tokenizer.json, vocab.txt, merges, SentencePiece or tiktoken.

In a folder, tokenizer.json takes precedence, because it is complete. Otherwise the older files are read by the rules of the
family that the configuration names.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, normalizers, pre_tokenizers

from ....core import several
from ....core.spec import brief
from .. import tokenizer_json
from ..sentencepiece.model_file import Piece, PieceKind, SentencePiece, parse
from ..sentencepiece.pipeline import pipeline
from ..tokenizer_json import ALL_ROLES, Parts, TokenizerExtra, checked, library_errors
from ..usual_calls import CALLED, NO_LIMIT
from . import tiktoken, vocab_files
from .hub_config import CONFIG, HubConfig, put_template, with_config
from .hub_families import (
    ALBERT,
    BERT,
    CLIP,
    ESM,
    FAIRSEQ,
    MARIAN,
    QWEN2,
    SIGLIP,
    WAV2VEC2,
    XLM_ROBERTA,
    TokenizerFamily,
)
from .marian import SOURCE, TARGET, VOCABULARY, marian
from .xlm_roberta_albert import albert, xlm_roberta

MERGES_OF = {"vocab.json": "merges.txt", "encoder.json": "vocab.bpe"}
"""File names of a vocabulary and its merges: the Hub's, and OpenAI's."""
MODELS = (".model", ".spm")
ACCEPTED = (
    "a tokenizer.json, BERT's vocab.txt, a vocab.json beside its merges.txt, a SentencePiece .model, a .tiktoken, or a "
    "folder with one of them"
)


def read(path: str | Path) -> Parts:
    """Read the tokenizer in a file or folder. Nothing in it is executed, imported or downloaded.

    Raises ValueError in one sentence if there is none, or if it is broken.
    """
    path = several.path(path, "a tokenizer").expanduser()
    if path.is_dir():
        path = _find_file(path)
    elif not path.is_file():
        raise ValueError(f"there is no tokenizer at {brief(path)}: give {ACCEPTED}")
    if path.name in MERGES_OF.values():
        path = path.with_name(next(name for name, merges in MERGES_OF.items() if merges == path.name))
    if path.suffix == ".json" and path.name not in MERGES_OF:
        what, read_it = tokenizer_json.FILE, _from_json
    elif path.name in MERGES_OF:
        what, read_it = "vocabulary with merges", _from_merges
    elif path.suffix in MODELS:
        what, read_it = "SentencePiece model", _from_sentencepiece
    elif path.suffix == tiktoken.SUFFIX:
        what, read_it = "tiktoken file", _from_tiktoken
    elif path.suffix == ".txt":
        what, read_it = "vocab.txt", _from_vocab_txt
    else:
        raise ValueError(f"{brief(path)} is not a known kind of tokenizer file: give {ACCEPTED}")
    try:
        with library_errors():
            return read_it(path)
    except ValueError as error:
        raise ValueError(f"{brief(path)} is not a usable {what}: {error}") from None


def _find_file(folder: Path) -> Path:
    """Find a folder's tokenizer file: tokenizer.json, Marian's source.spm, the file of the named family, or any other."""
    models = sorted(path for path in folder.iterdir() if path.suffix in MODELS)
    family = HubConfig.read(folder).family
    if family is SIGLIP and (folder / "spiece.model").is_file():
        return folder / "spiece.model"  # which alone transformers reads
    if (folder / tokenizer_json.FILE).is_file():
        return folder / tokenizer_json.FILE
    if (folder / SOURCE).is_file():
        return folder / SOURCE
    if len(models) > 1:
        names = ", ".join(path.name for path in models)
        raise ValueError(f"{brief(folder)} has several SentencePiece models ({names}): give the path of one")
    files = {
        "sentencepiece": models[:1],
        "merges": [folder / name for name in MERGES_OF],
        "characters": [folder / next(iter(MERGES_OF))],
        "vocab.txt": [folder / "vocab.txt"],
        "tiktoken": sorted(folder.glob(f"*{tiktoken.SUFFIX}"))[:1],
    }
    wanted = [*(files[family.files] if family else []), *(path for group in files.values() for path in group)]
    path = next((path for path in wanted if path.is_file()), None)
    if path is None:
        raise ValueError(f"there is no tokenizer at {brief(folder)}: give {ACCEPTED}")
    return path


# -- tokenizer.json ---------------------------------------------------------------------------------------------------


def _from_json(path: Path) -> Parts:
    """Read a tokenizer.json with the configuration beside it; a file written by qkv takes the chat template, the roles
    of tokens and what it says about calls from it."""
    parts = tokenizer_json.parse(tokenizer_json.read(path))
    config = HubConfig.read(path.parent)
    if parts.extra.roles is not None:
        return parts._replace(extra=_edited(parts, config))
    if not (config.values or config.family):
        return parts
    raw = parts.raw
    _follow_flags(raw, config)
    if getattr(raw.model, "end_of_word_suffix", None) == vocab_files.END_OF_WORD and _decodes_bytes_only(raw):
        raw.decoder = vocab_files.word_ends()
    extra = with_config(raw, config, config.family).extra
    return Parts(checked(raw, parts.model_size), replace(extra, dropout=parts.extra.dropout), parts.model_size)


def _edited(parts: Parts, config: HubConfig) -> TokenizerExtra:
    """What qkv wrote into a tokenizer.json, with the changes that were made in the configuration beside it since."""
    roles = dict(parts.extra.roles or {})
    special = {token.content for token in parts.raw.get_added_tokens_decoder().values() if token.special}
    for role in ALL_ROLES:
        token = config.token(role)
        if token is None or token.content == roles.get(role):
            continue
        if token.content not in special:
            warnings.warn(
                f"{CONFIG} has the {role}_token {brief(token.content)}, which is no special token of {tokenizer_json.FILE}; "
                "it is ignored",
                stacklevel=2,
            )
        else:
            roles[role] = token.content
    template = {"chat_template": config.values["chat_template"]} if config.values.get("chat_template") else {}
    called = {key: config.values[key] for key in CALLED if key in config.values}
    if called.get("model_max_length", NO_LIMIT) >= NO_LIMIT:
        called.pop("model_max_length", None)
    return replace(parts.extra, roles=roles, config={**parts.extra.config, **template}, calls=called)


def _follow_flags(raw: tokenizers.Tokenizer, config: HubConfig) -> None:
    """Apply the flags of the configuration that override the file, as in `transformers`."""
    if type(raw.normalizer) is normalizers.BertNormalizer:
        for flag, attribute in (
            ("do_lower_case", "lowercase"),
            ("strip_accents", "strip_accents"),
            ("tokenize_chinese_chars", "handle_chinese_chars"),
        ):
            if flag in config.values:
                setattr(raw.normalizer, attribute, config.values[flag])
    if type(raw.pre_tokenizer) is pre_tokenizers.ByteLevel and config.values.get("add_prefix_space") is not None:
        raw.pre_tokenizer.add_prefix_space = config.flag("add_prefix_space", False)


def _decodes_bytes_only(raw: tokenizers.Tokenizer) -> bool:
    """Whether the decoder is ByteLevel alone: CLIP's own file has this one, which leaves `</w>` in the text."""
    return raw.decoder is not None and raw.decoder.__getstate__().startswith(b'{"type":"ByteLevel"')


# -- older files ------------------------------------------------------------------------------------------------------


def _from_vocab_txt(path: Path) -> Parts:
    config = HubConfig.read(path.parent)
    family = config.known_family() or BERT
    vocabulary = vocab_files.read_vocab_txt(path)
    if family is ESM:
        return _finished(vocab_files.residues(vocabulary, ESM.roles), config, family)
    unk = config.token("unk")
    return _finished(vocab_files.bert(vocabulary, config, unk.content if unk else family.roles["unk"]), config, family)


def _from_merges(path: Path) -> Parts:
    config = HubConfig.read(path.parent)
    merges_path = path.with_name(MERGES_OF[path.name])
    if config.family is WAV2VEC2:
        raw = vocab_files.characters(vocab_files.read_vocab_json(path), config, WAV2VEC2.roles)
        parts = _finished(raw, config, WAV2VEC2)
        control = (parts.extra.roles or WAV2VEC2.roles).values()  # which files of transformers call ordinary
        parts.raw.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in control])
        return parts
    if not merges_path.is_file():
        raise ValueError(f"it needs a {merges_path.name} beside it, which is missing")
    vocabulary = vocab_files.read_vocab_json(path)
    merges = vocab_files.read_merges(merges_path, vocabulary)
    marked = any(right.endswith(vocab_files.END_OF_WORD) for _, right in merges)
    family = config.known_family() or (CLIP if marked else None)
    if family is CLIP:
        unk = config.token("unk")
        name = unk.content if unk else family.roles["unk"]
        raw = vocab_files.clip(vocabulary, merges, name if name in vocabulary else None)
    elif family is QWEN2:
        raw = vocab_files.qwen2(vocabulary, merges, config)
    else:
        raw = vocab_files.byte_level(vocabulary, merges, config)
    if family is None:
        _mark_known_names(raw, vocabulary)
    return _finished(raw, config, family)


def _from_tiktoken(path: Path) -> Parts:
    return _finished(tiktoken.read(path), HubConfig.read(path.parent), None)


def _mark_known_names(raw: tokenizers.Tokenizer, vocabulary: Iterable[str]) -> None:
    """Mark tokens with the usual names of control tokens as special, if no configuration names them."""
    usual = {name for names in ALL_ROLES.values() for name in names}
    raw.add_special_tokens([AddedToken(piece, special=True) for piece in vocabulary if piece in usual])


def _from_sentencepiece(path: Path) -> Parts:
    if path.stat().st_size > tokenizer_json.LARGEST_FILE:
        raise ValueError(
            f"it has {path.stat().st_size:,} bytes; the limit for a tokenizer is {tokenizer_json.LARGEST_FILE:,}"
        )
    config = HubConfig.read(path.parent)
    model = parse(path.read_bytes())
    family = config.known_family()
    if family is MARIAN:
        return _sides(model, path, config)
    if family is XLM_ROBERTA:
        return _finished(xlm_roberta(model), config, family)
    if family in FAIRSEQ:
        from . import fairseq  # imported here: other tokenizers do without

        return _finished(fairseq.fairseq(model, family, config, path.with_name(fairseq.VOCABULARY)), config, family)
    if family is ALBERT:
        return _finished(albert(model, config), config, family)
    if family is SIGLIP:
        from .siglip import siglip  # imported here: other tokenizers do without

        return _finished(siglip(model, config), config, family)
    parts = _finished(pipeline(model, _sentinels(model, family, config)), config, family)
    if parts.extra.roles is None:
        parts = Parts(parts.raw, TokenizerExtra(_model_roles(model), config=parts.extra.config))
    return parts


def _sides(model: SentencePiece, path: Path, config: HubConfig) -> Parts:
    """Read Marian's tokenizer from a file; for source.spm, also the one in target.spm beside it."""
    if config.flag("separate_vocabs", False):
        raise ValueError(
            "its configuration sets separate_vocabs, which qkv doesn't support: each side has its own vocabulary"
        )
    parts = _finished(marian(model, path.with_name(VOCABULARY)), config, MARIAN)
    target = path.with_name(TARGET)
    if path.name != SOURCE or not target.is_file():
        return parts
    return Parts(parts.raw, replace(parts.extra, target=json.loads(read(target).raw.to_str())))


def _sentinels(model: SentencePiece, family: TokenizerFamily | None, config: HubConfig) -> tuple[Piece, ...]:
    """Return T5's `<extra_id_99>` … `<extra_id_0>`, which follow the vocabulary and are in no file."""
    count = config.values.get("extra_ids", family.sentinels if family else 0)
    if not isinstance(count, int) or not 0 <= count <= 1000:
        raise ValueError(f"its configuration has extra_ids {brief(count)}; give a whole number from 0 to 1000")
    known = {piece.text for piece in model.pieces}
    names = [f"<extra_id_{i}>" for i in reversed(range(count))]
    return tuple(Piece(name, 0.0, PieceKind.CONTROL) for name in names if name not in known)


def _model_roles(model: SentencePiece) -> dict[str, str]:
    """Return the roles in the trainer settings of a SentencePiece model."""
    ids = {"pad": model.pad_id, "unk": model.unk_id, "bos": model.bos_id, "eos": model.eos_id}
    special = (PieceKind.CONTROL, PieceKind.UNKNOWN)
    return {
        role: model.pieces[i].text
        for role, i in ids.items()
        if 0 <= i < len(model.pieces) and model.pieces[i].kind in special
    }


def _finished(raw: tokenizers.Tokenizer, config: HubConfig, family: TokenizerFamily | None) -> Parts:
    """Complete a tokenizer by added tokens, roles and post-processor."""
    parts = with_config(raw, config, family)
    if family is not None and parts.extra.roles is not None:
        put_template(raw, parts.extra.roles, family, config)
    return Parts(checked(raw), parts.extra)
