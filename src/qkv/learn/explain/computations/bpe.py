"""Byte-pair encoding: where each merge comes from, and how merges split a new word."""

from __future__ import annotations

from ....core.spec import counted
from ....data.tokenizers.explain_split import LongestMatch, Merge, Segmentation, Splitter, WordSplit
from ....data.tokenizers.tokenizer import Tokenizer, train
from ....data.tokenizers.training.bpe import bpe_steps
from ....data.tokenizers.training.pair_merges import MergeStep, SymbolWords
from ....data.tokenizers.training.spec import TokenizerSpec
from ..explanation import Explanation
from ..steps import LabeledTable, Step, Values, listing
from ..subject import Subject

TITLE = "BPE: where each merge comes from"
WORDS = {"cats": 1, "mats": 1, "mate": 1, "ate": 1}
NEW_WORD = "mates"
MERGES = 4
SHOWN_PAIRS, SHOWN_WORDS = 8, 8


def example() -> Explanation:
    steps = [_start()]
    words = SymbolWords(WORDS)
    for number, merge in enumerate(bpe_steps(WORDS, MERGES), start=1):
        steps.append(_merge(number, merge, words))
    tokenizer = _trained(len({c for word in WORDS for c in word}) + MERGES)
    (split,) = Splitter(tokenizer).split(NEW_WORD)
    steps.append(
        _split(
            split,
            f"A new word: {NEW_WORD}",
            "No training word is “mates”. The merges are applied to its characters in the order "
            "in which they were learned.",
        )
    )
    about = f"A corpus of four words, each once: {', '.join(WORDS)}. {MERGES} merges are learned."
    return Explanation("bpe", TITLE, about, tuple(steps))


def of(subject: Subject) -> Explanation:
    assert subject.reader is not None
    tokenizer = subject.reader
    splits = Splitter(tokenizer).split(subject.text)
    kinds = {
        "bpe": (
            TITLE,
            "Each word begins as single symbols. Of the merges that apply, the one that was learned first is made "
            "next; its number "
            "is its place in the tokenizer's list.",
        ),
        "wordpiece": (
            "WordPiece: the longest piece first",
            "A word is cut from the left. Each piece is the longest one in the vocabulary that begins "
            "the rest of the word; the longer ones that were tried are listed.",
        ),
        "unigram": (
            "Unigram: the most probable pieces",
            "Every way to cut a word into pieces of the vocabulary has a probability, the product of the probabilities of "
            "its pieces. The most probable way wins.",
        ),
    }
    title, text = kinds[tokenizer.kind]
    shown = splits[:SHOWN_WORDS]
    more = f" The first {len(shown)} of {len(splits)} words are shown." if len(splits) > len(shown) else ""
    first = Step(
        "Words",
        f"The text has {len(splits)} words, which the tokenizer splits one by one.{more} {text}",
        tables=(
            listing(
                [split.word for split in shown],
                {
                    "pieces": [" ".join(split.pieces) for split in shown],
                    "ids": [" ".join(map(str, split.ids)) for split in shown],
                },
                "words and pieces",
            ),
        ),
    )
    about = f"{subject.about} Tokenizer: {tokenizer.kind} with {tokenizer.vocab_size:,} tokens."
    return Explanation("bpe", title, about, (first, *(_split(split, split.word) for split in shown)))


def _start() -> Step:
    rows = list(WORDS)
    columns: dict[str, Values] = {
        "count": [float(count) for count in WORDS.values()],
        "symbols": [" ".join(word) for word in rows],
    }
    return Step(
        "Characters",
        "Every word begins as its characters. Training then repeats one step: count the pairs of neighbors, and merge "
        "the most frequent one. There are no epochs, and nothing is learned by gradients.",
        "",
        (),
        (listing(rows, columns, "the corpus"),),
    )


def _merge(number: int, merge: MergeStep, words: SymbolWords) -> Step:
    """One merge; `words` is the corpus before it, and after it on return."""
    counted = sorted(((pair, count) for pair, count in words.pairs.items() if count), key=lambda item: -item[1])
    chosen = (merge.left, merge.right)
    counted.sort(key=lambda item: (-item[1], item[0] != chosen))
    counts = listing(
        [" + ".join(pair) for pair, _ in counted[:SHOWN_PAIRS]],
        {"count": [float(c) for _, c in counted[:SHOWN_PAIRS]]},
        "pairs of neighbors" + (f" ({SHOWN_PAIRS} of {len(counted)})" if len(counted) > SHOWN_PAIRS else ""),
    )
    words.merge(chosen)
    tied = sum(count == merge.count for _, count in counted)
    tie = f" {tied} pairs are equally frequent; the one with the oldest symbols is taken." if tied > 1 else ""
    corpus = listing(
        list(WORDS), {"symbols": [" ".join(symbols) for symbols in merge.words]}, "the corpus after the merge"
    )
    text = (
        f"“{merge.left}” and “{merge.right}” stand side by side "
        f"{'once' if merge.count == 1 else f'{merge.count} times'}.{tie} {merge.symbols} symbols are left."
    )
    return Step(f"Merge {number}: {merge.left} + {merge.right} → {merge.token}", text, "", (), (counts, corpus))


def _trained(size: int) -> Tokenizer:
    """A tokenizer with the same merges, by the library."""
    settings = {"kind": "bpe", "byte_level": False, "prefix_space": False, "min_frequency": 1, "vocab_size": size + 1}
    roles = {"bos": None, "eos": None, "pad": None, "unk": "<unk>"}
    return train(TokenizerSpec.from_dict({**settings, **roles}), iter(WORDS))


def _split(split: WordSplit, title: str, text: str = "") -> Step:
    """The steps that split one word."""
    result = f"{text} {counted(len(split.pieces), 'piece')}: {' '.join(split.pieces)}."
    return Step(title, result.strip(), tables=(_table(split),) if split.steps else ())


def _table(split: WordSplit) -> LabeledTable:
    first = split.steps[0]
    if isinstance(first, Merge):
        merges = [step for step in split.steps if isinstance(step, Merge)]
        return listing(
            ["start", *(f"merge {step.rank}" for step in merges)],
            {
                "pair": ["", *(f"{step.left} + {step.right}" for step in merges)],
                "symbols": [" ".join(split.start), *(" ".join(step.symbols) for step in merges)],
            },
            f"merges of {split.word}",
        )
    if isinstance(first, LongestMatch):
        matches = [step for step in split.steps if isinstance(step, LongestMatch)]
        return listing(
            [step.piece or "none: the word is unknown" for step in matches],
            {"longer pieces that the vocabulary lacks": [", ".join(step.tried) for step in matches]},
            f"pieces of {split.word}",
        )
    ways = [step for step in split.steps if isinstance(step, Segmentation)]
    return listing(
        [" ".join(way.symbols) for way in ways],
        {"log-probability": [way.log_prob for way in ways]},
        f"ways to cut {split.word}",
    )
