"""Beam search, step by step: candidates, their scores, the kept ones, and why a greedy search may do worse."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ....core.layout import Layout
from ....generation import Generation, generate
from ....nn.kv_cache.kinds import CacheKind
from ..explanation import Explanation
from ..steps import LabeledTable, Step, Values, listing
from ..subject import Subject

TITLE = "Beam search: several unfinished outputs at once"
WORDS = ("</s>", "the", "a", "cat", "mat", "sat")
NEXT = {
    "start": {"the": 0.55, "a": 0.45},
    "the": {"cat": 0.4, "mat": 0.35, "sat": 0.25},
    "a": {"cat": 0.9, "mat": 0.1},
    "cat": {"sat": 0.6, "</s>": 0.4},
    "mat": {"</s>": 0.7, "sat": 0.3},
    "sat": {"</s>": 0.9, "the": 0.1},
}
BEAMS, STEPS = 2, 4
SHOWN = 8  # steps of a search


@dataclass(eq=False)
class BeamRecorder:
    """A processor that records each step of a search, and changes nothing: paths so far, and log-probabilities "
    "after them."""

    width: int = 0
    paths: list[list[tuple[int, ...]]] = field(default_factory=list)
    log_probs: list[Tensor] = field(default_factory=list)

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        self.width = self.width or ids.shape[1]
        self.paths.append([tuple(row[self.width :]) for row in ids.tolist()])
        self.log_probs.append(logits.float())
        return logits


def example() -> Explanation:
    model = MarkovChain()
    trace = BeamRecorder()
    settings = Generation(num_beams=BEAMS, num_samples=BEAMS, max_new_tokens=STEPS, length_penalty=0.0)
    best = generate(model, [[len(WORDS)]], settings=settings, eos_id=0, processors=[trace], scores=True)
    greedy = generate(model, [[len(WORDS)]], settings=Generation(max_new_tokens=STEPS), eos_id=0, scores=True)
    pieces = [*WORDS, "start"]
    assert best.scores is not None and greedy.log_probs is not None
    ways = {
        "beam search": (best.sequences[0][0], best.scores[0][0]),
        "greedy": (greedy.sequences[0][0], sum(greedy.log_probs[0][0])),
    }
    columns: dict[str, Values] = {
        "words": [" ".join(pieces[i] for i in ids) for ids, _ in ways.values()],
        "Σ log p": [score for _, score in ways.values()],
        "p": [math.exp(score) for _, score in ways.values()],
    }
    last = Step(
        "Against greedy decoding",
        "Greedy decoding takes the likeliest word each time and can't go back: “the” begins well, but what follows "
        "it is unlikely. The beam also kept “a”, and found the likelier whole.",
        tables=(listing(list(ways), columns, "both outputs"),),
    )
    about = (
        f"A model whose next word depends on the last word alone. {BEAMS} beams, at most {STEPS} words, no "
        "length penalty."
    )
    rows = listing(
        list(NEXT),
        {word: [NEXT[before].get(word) for before in NEXT] for word in WORDS},
        "probability of the next word (column) after each word (row)",
    )
    table = Step("The model", "Probabilities of the next word.", tables=(rows,))
    steps = _steps(trace, lambda i: pieces[i], {0}, BEAMS, settings)
    return Explanation("beam", TITLE, about, (table, *steps, _finished(best, lambda i: pieces[i], settings), last))


def of(subject: Subject) -> Explanation:
    settings = subject.generation.replace(
        {"num_samples": 1, "do_sample": None, "temperature": None, "top_k": None, "top_p": None, "min_p": None}
    )
    settings = settings.replace({"num_beams": max(settings.num_beams, BEAMS), "seed": None})
    settings = settings.replace(
        {
            "max_new_tokens": max(min(settings.max_new_tokens, 2 * SHOWN), settings.min_new_tokens),
            "num_samples": settings.num_beams,
        }
    )
    trace = BeamRecorder()
    best = generate(
        subject.model,
        [list(subject.ids)],
        settings=settings,
        bos_id=subject.start,
        eos_id=list(subject.ends) or None,
        processors=[*subject.processors, trace],
        scores=True,
    )
    steps = _steps(trace, subject.piece, set(subject.ends), settings.num_beams, settings)
    more = f" The first {SHOWN} of {len(trace.paths)} steps are shown." if len(trace.paths) > SHOWN else ""
    about = (
        f"{subject.about} {settings.num_beams} beams, at most {settings.max_new_tokens} tokens, length penalty "
        f"{settings.length_penalty:g}.{more}"
    )
    return Explanation("beam", TITLE, about, (*steps[:SHOWN], _finished(best, subject.piece, settings)))


def _steps(trace: BeamRecorder, piece: Any, ends: set[int], beams: int, settings: Generation) -> list[Step]:
    """One step of the explanation for each step of the search."""
    scores: dict[tuple[int, ...], float] = {(): 0.0}
    steps = []
    for number_, (paths, log_probs) in enumerate(zip(trace.paths, trace.log_probs, strict=True), start=1):
        running = list(dict.fromkeys(path for path in paths if path in scores))
        candidates = _candidates(running, paths, log_probs, scores, max(2 * beams, 6))
        following = set(trace.paths[number_]) if number_ < len(trace.paths) else set()
        scores = {path: total for path, _, total in candidates}
        steps.append(_step(number_, candidates, following, piece, ends, beams))
    return steps


def _candidates(
    running: list[tuple[int, ...]],
    paths: list[tuple[int, ...]],
    log_probs: Tensor,
    scores: dict[tuple[int, ...], float],
    count: int,
) -> list[tuple[tuple[int, ...], float, float]]:
    """The best extensions of the running beams: path, log p of its last token, and the sum."""
    found = []
    for path in running:
        top = log_probs[paths.index(path)].topk(min(count, log_probs.shape[1]))
        for value, token in zip(top.values.tolist(), top.indices.tolist(), strict=True):
            if math.isfinite(value):
                found.append(((*path, token), value, scores[path] + value))
    return sorted(found, key=lambda item: -item[2])[:count]


def _step(
    number_: int,
    candidates: list[tuple[tuple[int, ...], float, float]],
    following: set[tuple[int, ...]],
    piece: Any,
    ends: set[int],
    beams: int,
) -> Step:
    rows = [" ".join(piece(i) for i in path) for path, *_ in candidates]
    marks = []
    for place, (path, *_) in enumerate(candidates):
        done = path[-1] in ends
        marks.append(
            ("finished" if place < beams else "dropped") if done else "kept" if path in following else "dropped"
        )
    columns: dict[str, list[Any]] = {
        "log p of the last": [value for _, value, _ in candidates],
        "Σ log p": [total for *_, total in candidates],
        "": marks,
    }
    text = (
        f"Every running beam is extended by every word. The best {beams} that don't end continue; one among the "
        f"best {beams} that ends is finished."
    )
    return Step(
        f"Step {number_}",
        text if number_ == 1 else "",
        "score = Σ log p" if number_ == 1 else "",
        (),
        (
            LabeledTable(
                tuple(rows),
                tuple(columns),
                tuple(zip(*columns.values(), strict=True)),
                "best candidates",
                by_column=True,
            ),
        ),
    )


def _finished(best: Any, piece: Any, settings: Generation) -> Step:
    rows = [" ".join(piece(i) for i in ids) or "∅" for ids in best.sequences[0]]
    columns: dict[str, Values] = {
        "tokens": [float(len(ids)) for ids in best.sequences[0]],
        "Σ log p": [sum(row) for row in best.log_probs[0]],
        "score": list(best.scores[0]),
        "ended by": list(best.reasons[0]),
    }
    text = "Finished outputs are ranked by their score."
    if settings.length_penalty:
        text += f" Dividing by length^{settings.length_penalty:g} makes up for the fact that every word lowers the sum."
    return Step(
        "Finished outputs", text, "score = Σ log p / length^penalty", (), (listing(rows, columns, "best outputs"),)
    )


class MarkovChain(nn.Module):
    """A model whose next word depends on the last word alone, by the table `NEXT`."""

    is_encoder_decoder = False
    vocab_size = len(WORDS) + 1
    max_positions = None

    def __init__(self) -> None:
        super().__init__()
        table = torch.full((self.vocab_size, self.vocab_size), -torch.inf)
        table[0, 0] = 0.0
        for before, after in NEXT.items():
            row = len(WORDS) if before == "start" else WORDS.index(before)
            for word, p in after.items():
                table[row, WORDS.index(word)] = math.log(p)
        self.register_buffer("table", table)

    table: Tensor

    @property
    def device(self) -> torch.device:
        return self.table.device

    def start(
        self,
        batch_size: int | None = None,
        *,
        source: Tensor | None = None,
        source_layout: Layout | None = None,
        capacity: int | None = None,
        cache: CacheKind | None = None,
    ) -> Memoryless:
        return Memoryless()

    def step(self, ids: Tensor, cache: object, layout: Layout | None = None) -> Tensor:
        return self.table[ids[:, -1]]


class Memoryless:
    """The cache of a model that remembers nothing."""

    def reorder(self, rows: Tensor, cross: bool = True) -> None:
        """Nothing to reorder."""
