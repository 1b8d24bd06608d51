"""XLM-RoBERTa and ALBERT tokenizers: a SentencePiece model with pre-processing of their own, as in `transformers`.

Both cut a text at its spaces before the model sees it, and put a `▁` before every word. What is a space, and what becomes
of characters that the model's table leaves alone, is therefore another matter than in SentencePiece itself.
"""

from __future__ import annotations

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from ..sentencepiece.model_file import Kind, ModelType, Piece, SentencePiece
from ..sentencepiece.pipeline import SPACE
from .hub_config import HubConfig

_FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")  # the first ids of its library, whatever the model's first pieces are


def xlm_roberta(model: SentencePiece) -> tokenizers.Tokenizer:
    """XLM-RoBERTa's: `<s> <pad> </s> <unk>`, the model's pieces after its three special ones, `<mask>`."""
    *first, mask = [Piece(name, 0.0, Kind.CONTROL) for name in (*_FAIRSEQ, "<mask>")]
    return _words(model, [*first, *model.pieces[3:], mask], _FAIRSEQ.index("<unk>"), _table(model))


def albert(model: SentencePiece, config: HubConfig) -> tokenizers.Tokenizer:
    """ALBERT's: the model's pieces, of text with plain quotes, without accents unless `keep_accents`, and in small letters
    unless `do_lower_case` is off."""
    stages: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not config.flag("keep_accents", False):
        stages += [normalizers.NFKD(), normalizers.StripAccents()]
    if config.flag("do_lower_case", True):
        stages.append(normalizers.Lowercase())
    return _words(model, list(model.pieces), model.unk_id, [*stages, *_table(model)])


def _table(model: SentencePiece) -> list[normalizers.Normalizer]:
    return [normalizers.Precompiled(model.precompiled_charsmap)] if model.precompiled_charsmap else []


def _words(
    model: SentencePiece, pieces: list[Piece], unk_id: int, stages: list[normalizers.Normalizer]
) -> tokenizers.Tokenizer:
    if model.model_type is not ModelType.UNIGRAM:
        raise ValueError(f"it is a {model.model_type.name.lower()} model; its family's are unigram models")
    if len({piece.text for piece in pieces}) < len(pieces):
        raise ValueError("it has a piece twice, once its family's own special tokens are among its pieces")
    raw = tokenizers.Tokenizer(models.Unigram([(piece.text, piece.score) for piece in pieces], unk_id, False))
    if stages:
        raw.normalizer = normalizers.Sequence(stages)
    space = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always")
    raw.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), space])
    raw.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")
    control = [piece.text for i, piece in enumerate(pieces) if piece.kind is Kind.CONTROL or i == unk_id]
    raw.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in control])
    defined = [piece.text for piece in pieces if piece.kind is Kind.USER_DEFINED]
    raw.add_tokens([AddedToken(name, special=False, normalized=False) for name in defined])
    return raw
