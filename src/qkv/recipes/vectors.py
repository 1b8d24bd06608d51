"""Initialize a model's token embedding from static word vectors, and report their coverage of the vocabulary."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from ..core.spec import Spec
from ..data.vectors import word2vec_format
from ..data.vectors.word_vectors import Vectors
from ..layers.embedding import TokenEmbedding
from ..models.base import ModelSpec
from ..models.build import build
from ..tokenizers.tokenizer import Tokenizer


class StaticVectors(Spec):
    """A recipe's `vectors: {path: glove.6B.100d.txt, frozen: true}`: what the token embedding begins with.

    path:       a file of word2vec or GloVe.
    frozen:     keep the whole table as it is; what is tied to it is then fixed too.
    encoding, keep_first: see `qkv.data.vectors.word2vec_format.read`.
    """

    path: str
    frozen: bool = False
    encoding: str = "utf-8"
    keep_first: bool = False

    def read(self, spec: ModelSpec, tokenizer: Tokenizer | None) -> Vectors:
        """The vectors, for a model that is yet to be built. Raises ValueError where they don't fit it or its tokenizer."""
        if tokenizer is None:
            raise ValueError("vectors are for models that read tokens, and this one has no tokenizer; leave them out")
        vectors = word2vec_format.read(Path(self.path).expanduser(), encoding=self.encoding, keep_first=self.keep_first)
        _check(token_tables(build(spec, device="meta", initialized=False)), tokenizer, vectors)
        return vectors


@dataclass(frozen=True)
class Coverage:
    """How many of the tokenizer's words have a vector, and of the running tokens of a text, where one was given.

    Words are tokens that can stand between spaces: not control tokens, markers, and pieces from within words.
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
        """Of running tokens; None where no text was given."""
        if self.tokens is None or self.tokens_found is None:
            return None
        return self.tokens_found / self.tokens if self.tokens else 0.0

    def __str__(self) -> str:
        said = f"{self.found:,} of the tokenizer's {self.words:,} words have a vector ({self.share:.1%})"
        if self.token_share is None:
            return said
        return f"{said}, and {self.tokens_found:,} of {self.tokens:,} running tokens ({self.token_share:.1%})"


def load_vectors(
    model: nn.Module,
    tokenizer: Tokenizer,
    vectors: Vectors | str | Path,
    frozen: bool = False,
    texts: Iterable[str] | None = None,
) -> Coverage:
    """Write vectors into every token table of a model, each word's into its token's row.

    Rows without a vector keep their drawn numbers, stretched to the mean and the standard deviation of the vectors
    (Kim 2014, "Convolutional neural networks for sentence classification", §3), so that none stands out by its size. A word
    that is not in the file is looked for in lowercase. Tables shared with another stack or with the head stay shared.

    frozen: take the gradient from the tables. texts: what coverage is also counted over.

    Raises ValueError where the model reads no tokens, the widths differ, or no word has a vector.
    """
    vectors = vectors if isinstance(vectors, Vectors) else word2vec_format.read(vectors)
    tables = token_tables(model)
    rows = _check(tables, tokenizer, vectors)
    for table in tables:
        _fill(table, vectors, rows)
        table.requires_grad_(table.requires_grad and not frozen)
    return coverage(tokenizer, vectors, texts)


def _check(tables: Sequence[nn.Parameter], tokenizer: Tokenizer, vectors: Vectors) -> dict[int, int]:
    """The row of the vectors for each token that has one. Raises ValueError where they can't stand in these tables."""
    if not tables:
        raise ValueError("this model has no table of tokens to write vectors into")
    for width in (table.shape[1] for table in tables if table.shape[1] != vectors.width):
        raise ValueError(
            f"the vectors have {vectors.width} numbers and the model's embedding {width}; make that {vectors.width} wide "
            f"(model.d_model={vectors.width}; model.d_e of a recurrent model), or give other vectors"
        )
    rows = _rows(tokenizer, vectors)
    if not rows:
        ours = [word for _, word in itertools.islice(words(tokenizer), 5)]
        raise ValueError(
            f"none of the tokenizer's words has a vector, of the {len(vectors):,} there are: its words are like "
            f"{', '.join(map(repr, ours))}, those of the vectors like {', '.join(map(repr, vectors.words[:5]))}"
        )
    return rows


def token_tables(model: nn.Module) -> list[nn.Parameter]:
    """The different tables that a model looks tokens up in."""
    found = [module.weight for module in model.modules() if isinstance(module, TokenEmbedding)]
    return list({id(table): table for table in found}.values())


def coverage(tokenizer: Tokenizer, vectors: Vectors, texts: Iterable[str] | None = None) -> Coverage:
    """How much of a tokenizer's vocabulary has a vector, and how much of some running text."""
    known = _rows(tokenizer, vectors)
    total = sum(1 for _ in words(tokenizer))
    if texts is None:
        return Coverage(len(known), total)
    counts: Counter[int] = Counter()
    for text in texts:
        counts.update(tokenizer.encode(text))
    return Coverage(len(known), total, sum(n for i, n in counts.items() if i in known), counts.total())


def words(tokenizer: Tokenizer) -> Iterator[tuple[int, str]]:
    """The tokens that are whole words, or begin one, with how they are spelled without the space before them."""
    apart = {*tokenizer.controls, *tokenizer.markers}
    shown = tokenizer.tokens(range(tokenizer.vocab_size)) if tokenizer.vocab_size else []
    marks = tokenizer.kind != "wordpiece" and any(token.startswith("▁") and len(token) > 1 for token in shown)
    for i, token in enumerate(shown):
        if not token or tokenizer.raw.id_to_token(i) in apart:
            continue
        if tokenizer.kind == "wordpiece" and token.startswith("##") and len(token) > 2:
            continue
        if not marks or (token.startswith("▁") and len(token) > 1):
            yield i, token.removeprefix("▁") or token


def _rows(tokenizer: Tokenizer, vectors: Vectors) -> dict[int, int]:
    """The row of the vectors for each token that has one."""
    index = vectors.index
    found = ((i, index.get(word, index.get(word.lower()))) for i, word in words(tokenizer))
    return {i: row for i, row in found if row is not None}


@torch.no_grad()
def _fill(table: Tensor, vectors: Vectors, rows: dict[int, int]) -> None:
    places = torch.tensor(list(rows), device=table.device)
    given = torch.from_numpy(vectors.array[list(rows.values())]).to(table)
    others = torch.ones(len(table), dtype=torch.bool, device=table.device).index_fill_(0, places, False)
    drawn, spread = table[others], table.std()
    if len(drawn) and spread > 0 and len(given) > 1:
        table[others] = given.mean(0) + drawn / spread * given.std(0)
    table[places] = given
