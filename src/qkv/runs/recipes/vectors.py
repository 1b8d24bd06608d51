"""Initialize a model's token embedding from static word vectors, and report their coverage of the vocabulary."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ...core.spec import Spec, counted
from ...data.tokenizers.tokenizer import Tokenizer
from ...nn.layers.embedding import TokenEmbedding
from ...nn.models.base import ModelSpec
from ...nn.models.build import build

if TYPE_CHECKING:
    from ...data.vectors.word_vectors import Vectors


class StaticVectors(Spec):
    """Initial token embeddings from a file: `vectors: {path: glove.6B.100d.txt, frozen: true}` in a recipe.

    path:       a file of word2vec or GloVe.
    frozen:     do not train the embedding table, nor the weights tied to it.
    encoding, keep_first: see `qkv.data.vectors.word2vec_format.read`.
    """

    path: str
    frozen: bool = False
    encoding: str = "utf-8"
    keep_first: bool = False

    def read(self, spec: ModelSpec, tokenizer: Tokenizer | None) -> Vectors:
        """Read the vectors. Raises ValueError if they don't fit the model to build, or its tokenizer."""
        if tokenizer is None:
            raise ValueError("vectors need a model that reads tokens, and this one has no tokenizer; leave them out")
        from ...data.vectors import word2vec_format

        vectors = word2vec_format.read(Path(self.path).expanduser(), encoding=self.encoding, keep_first=self.keep_first)
        _check(token_tables(build(spec, device="meta", initialized=False)), tokenizer, vectors)
        return vectors


@dataclass(frozen=True)
class Coverage:
    """How many of the tokenizer's words have a vector, and how many of the tokens of a text, if one was given.

    Words are tokens that can occur between spaces: not control tokens, special tokens, or pieces from within words.
    """

    found: int
    words: int
    tokens_found: int | None = None
    tokens: int | None = None

    @property
    def share(self) -> float:
        return self.found / self.words if self.words else 0.0

    @property
    def token_share(self) -> float | None:
        """The share of the text's tokens that have a vector; None without a text."""
        if self.tokens is None or self.tokens_found is None:
            return None
        return self.tokens_found / self.tokens if self.tokens else 0.0

    def __str__(self) -> str:
        words = counted(self.words, "word")
        text = f"{self.found:,} of the tokenizer's {words} have a vector ({self.share:.1%})"
        if self.token_share is None or self.tokens is None:
            return text
        return f"{text}, and {self.tokens_found:,} of {counted(self.tokens, 'running token')} ({self.token_share:.1%})"


def load_vectors(
    model: nn.Module,
    tokenizer: Tokenizer,
    vectors: Vectors | str | Path,
    frozen: bool = False,
    texts: Iterable[str] | None = None,
) -> Coverage:
    """Copy word vectors into the token embedding tables of a model.

    Rows without a vector keep their random values, scaled to the mean and standard deviation of the vectors (Kim 2014,
    "Convolutional neural networks for sentence classification", §3). A word that is not in the file is looked up in
    lowercase. Tables shared with another stack or with the head stay shared.

    frozen: do not train the tables.
    texts:  texts on whose tokens coverage is also counted.

    Raises ValueError if the model reads no tokens, the widths differ, or no word has a vector.
    """
    from ...data.vectors import word2vec_format
    from ...data.vectors.word_vectors import Vectors

    vectors = vectors if isinstance(vectors, Vectors) else word2vec_format.read(vectors)
    tables = token_tables(model)
    rows = _check(tables, tokenizer, vectors)
    for table in tables:
        _fill(table, vectors, rows)
        table.requires_grad_(table.requires_grad and not frozen)
    return coverage(tokenizer, vectors, texts)


def _check(tables: Sequence[nn.Parameter], tokenizer: Tokenizer, vectors: Vectors) -> dict[int, int]:
    """Map each token id that has a vector to its row of the vectors. Raises ValueError if they don't fit the tables."""
    if not tables:
        raise ValueError("this model has no token embedding to copy vectors into; leave vectors out")
    for width in (table.shape[1] for table in tables if table.shape[1] != vectors.width):
        raise ValueError(
            f"the vectors are {vectors.width} wide and the model's embedding {width}; set model.d_model={vectors.width} "
            "(model.d_e of a recurrent model), or give other vectors"
        )
    rows = _rows(tokenizer, vectors)
    if not rows:
        ours = [word for _, word in itertools.islice(words(tokenizer), 5)]
        raise ValueError(
            f"none of the tokenizer's words is among the {counted(len(vectors), 'word')} of the vectors: its words are like "
            f"{', '.join(map(repr, ours))}, and the vectors' words like {', '.join(map(repr, vectors.words[:5]))}; give "
            "vectors for the words of this tokenizer"
        )
    return rows


def token_tables(model: nn.Module) -> list[nn.Parameter]:
    """The token embedding tables of a model, each once."""
    tables = [module.weight for module in model.modules() if isinstance(module, TokenEmbedding)]
    return list({id(table): table for table in tables}.values())


def coverage(tokenizer: Tokenizer, vectors: Vectors, texts: Iterable[str] | None = None) -> Coverage:
    """Count how much of a tokenizer's vocabulary, and of some texts, has a vector."""
    known = _rows(tokenizer, vectors)
    total = sum(1 for _ in words(tokenizer))
    if texts is None:
        return Coverage(len(known), total)
    counts: Counter[int] = Counter()
    for text in texts:
        counts.update(tokenizer.encode(text))
    return Coverage(len(known), total, sum(n for i, n in counts.items() if i in known), counts.total())


def words(tokenizer: Tokenizer) -> Iterator[tuple[int, str]]:
    """The ids and spellings of tokens that are words or begin one, without the space before them."""
    special = {*tokenizer.controls, *tokenizer.markers}
    tokens = tokenizer.tokens(range(tokenizer.vocab_size)) if tokenizer.vocab_size else []
    marks = tokenizer.kind != "wordpiece" and any(token.startswith("▁") and len(token) > 1 for token in tokens)
    for i, token in enumerate(tokens):
        if not token or tokenizer.raw.id_to_token(i) in special:
            continue
        if tokenizer.kind == "wordpiece" and token.startswith("##") and len(token) > 2:
            continue
        if not marks or (token.startswith("▁") and len(token) > 1):
            yield i, token.removeprefix("▁") or token


def _rows(tokenizer: Tokenizer, vectors: Vectors) -> dict[int, int]:
    """Map each token id that has a vector to its row of the vectors."""
    index = vectors.index
    rows = ((i, index.get(word, index.get(word.lower()))) for i, word in words(tokenizer))
    return {i: row for i, row in rows if row is not None}


@torch.no_grad()
def _fill(table: Tensor, vectors: Vectors, rows: dict[int, int]) -> None:
    ids = torch.tensor(list(rows), device=table.device)
    pretrained = torch.from_numpy(vectors.array[list(rows.values())]).to(table)
    others = torch.ones(len(table), dtype=torch.bool, device=table.device).index_fill_(0, ids, False)
    random, std = table[others], table.std()
    if len(random) and std > 0 and len(pretrained) > 1:
        table[others] = pretrained.mean(0) + random / std * pretrained.std(0)
    table[ids] = pretrained
