"""How good a model is on examples it was not trained on: likelihood of the truth, and outputs beside the truth."""

from __future__ import annotations

import itertools
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..core.batch import IGNORE, Batch
from ..core.spec import nearest
from ..data.batching import Batching, stream
from ..data.sources import SPLITS, Example, Skipped, Source, Split, Table
from ..data.task import Task, TextTask
from ..data.tokenizer import Tokenizer
from ..generate import Generation
from ..model.build import AnyModel
from ..train.objective import Objective
from . import metrics
from .chat import Assistant
from .evaluation import ROUGE, TEXT_METRICS, USUAL, Evaluation, Metric
from .text import TextModel, Use

if TYPE_CHECKING:
    from .load import Run

PROMPT = 32  # tokens of a running text that a sample goes on from, or as many as half the context where that is less


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation found.

    metrics:    by name, exact_match from 0 to 1, bleu and chrf from 0 to 100; loss is nats per token. Of a task, the terms
                of its loss, each by what it counts, and what its judge measures.
    signatures: how a metric was computed, where there is more than one way.
    samples:    `{"source", "target", "output"}`, without "target" where there is no one truth.
    notes:      what the data's reader has to say: what was skipped, or cut.
    """

    split: str
    examples: int
    metrics: dict[str, float]
    signatures: dict[str, str]
    samples: list[dict[str, Any]]
    notes: list[str]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)


@dataclass
class Likelihood:
    """Sums over what was predicted: negative log-likelihood (nats), tokens, UTF-8 bytes, rows."""

    nll: float = 0.0
    count: int = 0
    size: int = 0
    rows: int = 0


class Fixed(Source, kind="fixed"):
    """Given entries, whatever the split."""

    given: tuple[Any, ...]

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        return self.given


@dataclass(frozen=True)
class Evaluator:
    """Evaluates models on the splits of a source. The result depends on the model and the settings alone."""

    source: Source
    tokenizer: Tokenizer | None
    batching: Batching
    evaluation: Evaluation
    generation: Generation
    objective: Objective
    seed: int = 0
    task: Task | None = None

    def __call__(
        self,
        model: AnyModel,
        split: Split,
        limit: int | None = None,
        generation: Generation | None = None,
        samples: int | None = None,
    ) -> Evaluated:
        """Measure on the first `limit` examples of a split (of running text: rows of the context's width).

        Likelihood is measured over batches like those of training; outputs are generated where pairs have a truth to
        compare them with. `generation` and `samples` stand in for those of the settings.
        """
        began = time.perf_counter()
        kept = self.evaluation.samples if samples is None else samples
        if self.task is not None:
            return self._judged(self.task, model, split, limit, kept)
        examples = self._examples(split, limit, kept)
        pairs = "source" in examples[0]
        wanted = self._wanted(pairs)
        likelihood, notes = self._likelihood(model, split, tuple(examples) if pairs else None, limit)
        found = _of_likelihood(likelihood, wanted)
        text_model = TextModel(model, self._words, task_of(model, pairs))
        settings = generation or self.generation
        settings = settings.replace(seed=self.seed if settings.seed is None else settings.seed)
        if pairs:
            judged = examples if set(wanted) & set(TEXT_METRICS) else examples[:kept]
            shown = self._outputs(text_model, judged, settings)
            found |= self._of_outputs(shown, wanted)
        else:
            shown = self._continued(text_model, examples[:kept], settings)
        return Evaluated(
            split,
            len(examples) if pairs else likelihood.rows,
            {name: value for name, (value, _) in found.items()},
            {name: signature for name, (_, signature) in found.items() if signature},
            spread(shown, kept),
            notes,
            time.perf_counter() - began,
        )

    @property
    def _words(self) -> Tokenizer:
        assert self.tokenizer is not None
        return self.tokenizer

    def _judged(self, task: Task, model: AnyModel, split: Split, limit: int | None, kept: int) -> Evaluated:
        """Every term of the loss, and what the task's judge makes of the model's outputs."""
        began = time.perf_counter()
        judge, batching = task.judge(self.tokenizer), self.batching.replace(workers=0, shuffle=False)
        source, seq2seq, rows = self.source, model.is_encoder_decoder, 0
        if limit is not None and not isinstance(task, TextTask):  # batches are sorted by length: take the first before
            source, limit = Fixed(given=first(source.table(split, seed=self.seed), limit)), None
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        with (
            stream(
                source, self.tokenizer, batching, seq2seq=seq2seq, task=task, split=split, seed=self.seed, epochs=1
            ) as batches,
            torch.inference_mode(),
        ):
            for batch in batches:
                rows += len(batch.texts) or batch.rows
                moved = batch.to(model.device)
                for name, term in self.objective(model, moved).items():
                    sums[name][0] += float(term.sum if term.value is None else term.value)
                    sums[name][1] += term.count
                judge.read(model, moved)
                if limit is not None and rows >= limit:
                    break
        metrics = {name: total / count for name, (total, count) in sums.items() if count}
        if not metrics:
            raise ValueError("no label counts in these examples, so there is nothing to measure")
        found = judge.found()
        return Evaluated(
            split,
            rows,
            metrics | {name: one.value for name, one in found.items()},
            {name: one.how for name, one in found.items() if one.how},
            judge.samples(kept),
            [str(batches.report)] if batches.report.skipped or batches.report.cut else [],
            time.perf_counter() - began,
        )

    def _examples(self, split: Split, limit: int | None, kept: int) -> list[Example]:
        """What outputs are made for: of pairs all up to the limit, of running text some to be shown."""
        found = self.source.examples(split, shuffle=False)
        first = next(found, None)
        if first is None:
            raise ValueError(f"the {split} split holds no example to evaluate on")
        most = limit if "source" in first else max(kept, 1)
        return [first, *itertools.islice(found, None if most is None else most - 1)]

    def _wanted(self, pairs: bool) -> tuple[Metric, ...]:
        given = self.evaluation.metrics
        if given is None:
            return USUAL if pairs else ("perplexity", "bits-per-byte")
        impossible = [] if pairs else [name for name in given if name in TEXT_METRICS]
        if impossible:
            raise ValueError(
                f"{impossible[0]} compares outputs with a truth, which running text doesn't have; leave it out"
            )
        return given

    def _likelihood(
        self, model: AnyModel, split: Split, examples: tuple[Example, ...] | None, limit: int | None
    ) -> tuple[Likelihood, list[str]]:
        """The objective's terms over the examples, or over the rows of running text up to the limit."""
        source = self.source if examples is None else Fixed(given=examples)
        total = Likelihood()
        batching = self.batching.replace(workers=0, shuffle=False)
        seq2seq = model.is_encoder_decoder
        with stream(source, self._words, batching, seq2seq=seq2seq, split=split, seed=self.seed, epochs=1) as batches:
            for batch in batches:
                total.rows += len(batch.labels) if batch.labels is not None else 0
                self._add(total, model, batch)
                if examples is None and limit is not None and total.rows >= limit:
                    break
            return total, [str(batches.report)] if batches.report.skipped or batches.report.cut else []

    @torch.inference_mode()
    def _add(self, total: Likelihood, model: AnyModel, batch: Batch) -> None:
        for term in self.objective(model, batch.to(model.device)).values():
            total.nll += float(term.sum if term.value is None else term.value)
            total.count += term.count
        if batch.texts:
            total.size += sum(len(text["target"].encode()) for text in batch.texts)
        elif batch.labels is not None:
            texts = (self._words.decode(row[row != IGNORE].tolist()) for row in batch.labels)
            total.size += sum(len(text.encode()) for text in texts)

    def _outputs(self, text_model: TextModel, examples: list[Example], settings: Generation) -> list[dict[str, str]]:
        sources = [example["source"] for example in examples]
        context = text_model.model.max_positions
        longest = None if context is None else context if text_model.task == "translate" else context - 1
        made = text_model.outputs(sources, settings, longest=longest)
        return [
            {"source": example["source"], "target": example["target"], "output": outputs[0].text}
            for example, outputs in zip(examples, made, strict=True)
        ]

    def _of_outputs(self, shown: list[dict[str, str]], wanted: tuple[Metric, ...]) -> dict[str, metrics.Measured]:
        outputs, truths = [one["output"] for one in shown], [one["target"] for one in shown]
        found = {}
        if "exact-match" in wanted:
            found["exact_match"] = metrics.exact_match(outputs, truths)
        if "bleu" in wanted:
            found["bleu"] = metrics.bleu(outputs, truths, self.evaluation.bleu_tokenize)
        if "chrf" in wanted:
            found["chrf"] = metrics.chrf(outputs, truths)
        return found | {name: metrics.rouge(outputs, truths, name) for name in ROUGE if name in wanted}

    def _continued(self, text_model: TextModel, examples: list[Example], settings: Generation) -> list[dict[str, str]]:
        """The beginnings of running texts, and how the model goes on with them."""
        if examples and "messages" in examples[0]:
            return self._replied(text_model, examples, settings)
        context = text_model.model.max_positions
        length = PROMPT if context is None else min(PROMPT, context // 2)
        starts = [text_model.tokenizer.decode(self._words.encode(e["text"][:2000])[:length]) for e in examples]
        starts = [start for start in starts if start.strip()]
        made = text_model.outputs(starts, settings) if starts else []
        return [{"source": start, "output": outputs[0].text} for start, outputs in zip(starts, made, strict=True)]

    def _replied(self, text_model: TextModel, examples: list[Example], settings: Generation) -> list[dict[str, str]]:
        """Conversations up to the assistant's last turn, what it said, and what the model says."""
        chats = [json.loads(example["messages"]) for example in examples]
        asked = [chat[: max(i for i, m in enumerate(chat) if m["role"] == "assistant")] for chat in chats]
        speaker = Assistant(text_model.model, self._words, "answer", text_model.ids)
        made = speaker.replies(asked, settings)
        said = ["\n".join(f"{m['role']}: {m['content']}" for m in before) for before in asked]
        truth = [chat[len(before)]["content"] for chat, before in zip(chats, asked, strict=True)]
        return [
            {"source": source, "target": target, "output": outputs[0].text}
            for source, target, outputs in zip(said, truth, made, strict=True)
        ]


def first(table: Table, most: int) -> tuple[Example | Skipped, ...]:
    """A table's entries up to so many good ones, and the bad ones between, which are to be counted."""
    entries: list[Example | Skipped] = []
    good = i = 0
    while good < most and i < len(table):
        entry = table[i]
        i += 1
        if entry is not None:
            entries.append(entry)
            good += not isinstance(entry, Skipped)
    return tuple(entries)


def task_of(model: AnyModel, pairs: bool) -> Use:
    return "translate" if model.is_encoder_decoder else "answer" if pairs else "continue"


def spread(samples: Sequence[dict[str, str]], count: int) -> list[dict[str, str]]:
    """So many samples, evenly from the whole list: what stands beside one another is often of one kind."""
    count = min(count, len(samples))
    return [samples[(2 * i + 1) * len(samples) // (2 * count)] for i in range(count)]


def _of_likelihood(total: Likelihood, wanted: tuple[Metric, ...]) -> dict[str, metrics.Measured]:
    if not total.count:
        raise ValueError("no label counts in these examples, so there is no likelihood to measure")
    found = {"loss": metrics.Measured(total.nll / total.count, "")}
    if "perplexity" in wanted:
        found["perplexity"] = metrics.Measured(metrics.perplexity(total.nll, total.count), "")
    if "bits-per-byte" in wanted and total.size:
        found["bits_per_byte"] = metrics.Measured(metrics.bits_per_byte(total.nll, total.size), "")
    return found


def evaluate_run(
    run: Run,
    split: str = "test",
    data: Sequence[str] = (),
    *,
    num_beams: int | None = None,
    max_examples: int | None = None,
) -> Evaluated:
    """Evaluate a loaded run on a split of its data; `data` are changes to these, `test_path=my.tsv`."""
    if run.recipe is None:
        raise ValueError(
            f"{run.path} has no recipe.yaml, which says what its data are; give a run that `qkv train` made"
        )
    recipe = run.recipe.change([f"data.{item}" for item in data])
    evaluator = Evaluator(
        recipe.data,
        run.tokenizer,
        recipe.batching,
        recipe.evaluation,
        run.generation,
        recipe.objective,
        recipe.seed,
        recipe.task,
    )
    chosen = next((name for name in SPLITS if name == split), None)
    if chosen is None:
        raise ValueError(f"there is no split {split!r}; {nearest(split, SPLITS)}")
    limit = recipe.evaluation.test_examples if max_examples is None else max_examples
    generation = run.generation if num_beams is None else run.settings(num_beams=num_beams)
    return evaluator(run.model, chosen, limit, generation)
