"""Learning word vectors: the text as numbers, the updates as the papers' formulas give them, and what is learned."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from qkv.data.vectors.glove import GloVe
from qkv.data.vectors.skipgram import SkipGram
from qkv.data.vectors.training import VectorCorpus, VectorMethod, method
from qkv.data.vectors.word_vectors import Vectors

TOPICS = [["wave", "fish", "boat", "salt", "tide"], ["cloud", "wind", "bird", "star", "moon"]]


def topics(lines: int = 400, mixed: bool = False) -> list[str]:
    """Lines of one topic each, or of both, the words in any order."""
    random = Random(0)
    groups = [[*TOPICS[0], *TOPICS[1]]] if mixed else TOPICS
    return [" ".join(random.choices(random.choice(groups), k=8)) for _ in range(lines)]


def apart(vectors: Vectors) -> float:
    """Mean cosine within a topic less that between topics."""
    groups = [[vectors.unit[vectors.index[word]] for word in group] for group in TOPICS]
    inner = np.mean([a @ b for g in groups for i, a in enumerate(g) for b in g[:i]])
    return float(inner - np.mean([a @ b for a in groups[0] for b in groups[1]]))


def test_a_corpus_numbers_words_by_frequency_and_takes_out_rare_ones() -> None:
    corpus = VectorCorpus.of(["b a b c", "", "A b a"], min_count=2)
    assert corpus.words == ("b", "a") and corpus.counts.tolist() == [3, 2]
    assert corpus.ids.tolist() == [0, 1, 0, 0, 1] and corpus.sentences.tolist() == [0, 0, 0, 2, 2]
    assert corpus.dropped == 2 and len(corpus) == 5
    lowered = VectorCorpus.of(["b a b c", "", "A b a"], min_count=2, lowercase=True)
    assert lowered.words == ("a", "b") and lowered.counts.tolist() == [3, 3]


def test_files_are_one_corpus(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x y\n")
    (tmp_path / "b.txt").write_text("y x z\n")
    assert VectorCorpus.read([tmp_path / "a.txt", tmp_path / "b.txt"], min_count=1).ids.tolist() == [0, 1, 1, 0, 2]


def test_a_text_without_words_enough_is_told() -> None:
    with pytest.raises(ValueError, match=r"0 of the text's 3 words occur 5 times or more.*lower min_count"):
        VectorCorpus.of(["a b c"])
    with pytest.raises(ValueError, match="0 of the text's 0 words"):
        VectorCorpus.of([])


def test_methods_are_made_by_name() -> None:
    assert method("skipgram", width=7, lr=None) == SkipGram(width=7)
    assert set(VectorMethod.kinds) == {"skipgram", "glove"}
    with pytest.raises(ValueError, match="did you mean 'glove'"):
        method("glov")
    with pytest.raises(ValueError, match="x_max"):
        method("skipgram", x_max=3)


METHODS = [SkipGram(width=16, epochs=5, window=3, subsample=0), GloVe(width=16, epochs=10, window=3, x_max=10)]


@pytest.mark.parametrize("chosen", METHODS, ids=lambda chosen: chosen.kind)
def test_words_of_one_topic_come_to_lie_together(chosen: VectorMethod) -> None:
    seen: list[float] = []
    vectors = chosen.train(VectorCorpus.of(topics()), progress=seen.append)
    assert vectors.array.shape == (10, 16) and apart(vectors) > 0.5
    assert abs(apart(chosen.train(VectorCorpus.of(topics(mixed=True))))) < 0.2
    assert seen == sorted(seen) and seen[0] >= 0 and seen[-1] <= 1


@pytest.mark.parametrize("chosen", METHODS, ids=lambda chosen: chosen.kind)
def test_the_seed_decides(chosen: VectorMethod) -> None:
    corpus = VectorCorpus.of(topics(60))
    first, again, other = (chosen.train(corpus, seed=seed).array for seed in (3, 3, 4))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_a_setting_of_another_method_is_named_with_the_settings_there_are() -> None:
    with pytest.raises(ValueError, match=r"glove has no negatives; its settings are .*x_max"):
        method("glove", negatives=3)
    with pytest.raises(ValueError, match=r"skipgram has no x_max; its settings are .*negatives"):
        method("skipgram", x_max=3.0, width=None)
