"""XLM-RoBERTa and ALBERT tokenizers: a SentencePiece model with other preprocessing, as in `transformers`.

Both cut the text at white space before the model is applied, and put a `▁` before every word. White space, and characters
that the model's table doesn't change, are therefore treated differently than in SentencePiece itself.
"""

from __future__ import annotations

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from ..sentencepiece.model_file import ModelType, Piece, PieceKind, SentencePiece
from ..sentencepiece.pipeline import SPACE
from .hub_config import HubConfig

FIRST = ("<s>", "<pad>", "</s>", "<unk>")  # the first ids in fairseq, regardless of the model's first pieces


def xlm_roberta(model: SentencePiece) -> tokenizers.Tokenizer:
    """Return XLM-RoBERTa's tokenizer: `<s> <pad> </s> <unk>`, the model's pieces but its three special ones, `<mask>`."""
    *first, mask = [Piece(name, 0.0, PieceKind.CONTROL) for name in (*FIRST, "<mask>")]
    return _words(model, [*first, *model.pieces[3:], mask], FIRST.index("<unk>"), _table(model))


def albert(model: SentencePiece, config: HubConfig) -> tokenizers.Tokenizer:
    """Return ALBERT's tokenizer. It normalizes quotes, strips accents unless `keep_accents` is set, and lowercases unless
    `do_lower_case` is false."""
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
        raise ValueError(f"it is a {model.model_type.name.lower()} model, but its family has unigram models")
    if len({piece.text for piece in pieces}) < len(pieces):
        raise ValueError("its pieces and the special tokens of its family overlap")
    raw = tokenizers.Tokenizer(models.Unigram([(piece.text, piece.score) for piece in pieces], unk_id, False))
    if stages:
        raw.normalizer = normalizers.Sequence(stages)
    space = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always")
    raw.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), space])
    raw.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")
    control = [piece.text for i, piece in enumerate(pieces) if piece.kind is PieceKind.CONTROL or i == unk_id]
    raw.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in control])
    defined = [piece.text for piece in pieces if piece.kind is PieceKind.USER_DEFINED]
    raw.add_tokens([AddedToken(name, special=False, normalized=False) for name in defined])
    return raw
