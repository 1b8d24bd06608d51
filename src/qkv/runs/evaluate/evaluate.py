"""Evaluate a model on a split: likelihood of the references, and generated outputs compared with them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch

from ...core import json_files, several
from ...core.batch import IGNORE, Batch
from ...core.metrics import text as text_metrics
from ...core.metrics.base import Metric as TaskMetric
from ...core.metrics.base import model_outputs
from ...core.metrics.extremes import Extremes, Ranking
from ...core.optional_libraries import need
from ...core.ranks import ALONE, Ranks, in_turns
from ...core.spec import brief, counted, nearest
from ...data.batching.settings import Batching
from ...data.loader.stream import Stream, stream
from ...data.source import SPLITS, Example, Source, Split, Table
from ...data.task import Task, TextTask
from ...data.tokenizers.chat.messages import last_reply, text_of
from ...data.tokenizers.tokenizer import Tokenizer
from ...generation import Generation
from ...io.directories.run_config import Use
from ...nn.models.build import AnyModel
from ...training.objective import Objective, terms_of
from ..inference.chat import replies
from ..inference.loaded import LoadedModel, in_training
from ..recipes.evaluation import TEXT_METRICS, Evaluation, Metric, missing
from ..recipes.recipe import Recipe
from ..tasks.samples import evenly
from .baselines import advice, baselines_of
from .decoding import changed_decoding
from .example_counts import Clock, first, goods, up_to
from .likelihood import Likelihood, TermSums, TermValue, values_of

if TYPE_CHECKING:
    from ..inference.run import Run

PROMPT = 32  # tokens of running text that a sample continues, at most half the context


@dataclass(frozen=True)
class Evaluated:
    """The result of an evaluation.

    examples:   number of examples evaluated; for running text (`unit` "row"), of rows as wide as the context.
    available:  number of examples in the split; None if counting them would have taken too long.
    metrics:    by name: exact_match from 0 to 1, bleu and chrf from 0 to 100, loss in nats per token, and the other terms of
                the objective under their own names. For a task: the mean of each term of its loss, and its metric.
    counts:     by metric, the number of examples that it covers, if not all of them.
    signatures: by metric, how it was computed, if there is more than one way.
    samples:    `{"source", "target", "output"}`, without "target" if there is no single one; chats have "messages".
    notes:      what was skipped or truncated.
    confusions: of classification, (true class, predicted class, number of examples) of each pair that occurred.
    baselines:  "name", "metrics" and "about" of simple methods on the same examples, see `Task.baselines`.
    extremes:   the best and the worst examples, by a score such as chrF, if there is one; not part of the JSON.
    outputs:    of pairs, every generated output: "source", "hypothesis", "references" and "scores"; not part of the JSON.
    """

    split: str
    examples: int
    metrics: dict[str, float]
    signatures: dict[str, str]
    samples: list[dict[str, Any]]
    notes: list[str]
    seconds: float
    available: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    confusions: list[tuple[str, str, int]] = field(default_factory=list)
    outputs: list[dict[str, Any]] = field(default_factory=list)
    baselines: list[dict[str, Any]] = field(default_factory=list)
    extremes: Extremes | None = None
    unit: str = "example"

    @property
    def limited(self) -> bool:
        """Whether a limit left out part of the split."""
        return self.available != self.examples

    def to_dict(self) -> dict[str, Any]:
        """Return everything but `outputs` and `extremes`."""
        fields = asdict(replace(self, outputs=[], extremes=None))
        del fields["outputs"], fields["extremes"]
        return fields

    def to_json(self) -> str:
        """Return the result as JSON. NaN and the infinities, which JSON lacks, become null."""
        return json_files.dumps(self.to_dict(), indent=2)


class FixedExamples(Source, kind="fixed"):
    """The same examples, from memory, for every split."""

    entries: tuple[Any, ...]

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        return self.entries


@dataclass(frozen=True)
class Evaluator:
    """Evaluates models on the splits of a source. The result depends only on the model and these settings.

    Several `ranks`, each of which has the whole model, divide batches and prompts among them and get the same result.
    Metrics of tasks that run the model in a special way are computed by every rank. With `together` ranks have parts of the
    model, and every rank computes all outputs too.
    """

    source: Source
    tokenizer: Tokenizer | None
    batching: Batching
    evaluation: Evaluation
    generation: Generation
    objective: Objective
    seed: int = 0
    task: Task | None = None
    ranks: Ranks = ALONE
    together: bool = False

    def __call__(
        self,
        model: AnyModel,
        split: Split,
        limit: int | None = None,
        generation: Generation | None = None,
        samples: int | None = None,
        count: bool = True,
        score_each: bool = False,
    ) -> Evaluated:
        """Evaluate on the first `limit` examples of a split (for running text: rows of the context's width).

        Likelihood is measured over batches as in training. Outputs are generated for pairs, which have a reference
        to compare them with. `generation` and `samples` override the settings; `count` says whether to count the examples
        that a limit leaves out, and `score_each` whether to return every output of pairs with its metrics.
        """
        kept = self.evaluation.samples if samples is None else samples
        clock = Clock(count)
        if self.task is not None:
            if score_each:
                raise ValueError(
                    f"the task {self.task.kind} generates no texts to write; use qkv predict for its predictions, or leave "
                    "out --out"
                )
            return self._of_task(self.task, model, split, limit, kept, clock)
        entries = self.source.examples(split, shuffle=False)
        examples = self._examples(entries, split, limit, kept)
        if "source" in examples[0]:
            return self._of_pairs(model, split, examples, generation, kept, clock, entries, score_each)
        if score_each:
            raise ValueError("these data are running text, which has no outputs to write; leave out --out")
        return self._of_text(model, split, examples, limit, generation, kept, clock)

    def _of_pairs(
        self,
        model: AnyModel,
        split: Split,
        examples: list[Example],
        generation: Generation | None,
        kept: int,
        clock: Clock,
        rest: Iterator[Example],
        score_each: bool,
    ) -> Evaluated:
        """Likelihood of the references, and generated outputs compared with them. `rest` are the examples beyond a limit."""
        wanted, left_out = self.evaluation.wanted(pairs=True)
        if "bleu" in wanted:
            text_metrics.sacre_bleu(
                self.evaluation.bleu_tokenize
            )  # refuse a missing library before outputs are generated
        likelihood, notes, _ = self._likelihood(model, split, FixedExamples(entries=tuple(examples)), None, clock)
        notes += left_out
        of_tokens = likelihood.results(wanted)
        decoded = examples if score_each or set(wanted) & set(TEXT_METRICS) else examples[:kept]
        run = in_training(model, self._words, task_of(model, pairs=True))
        outputs, cut = self._outputs(run, decoded, self._decoding(generation))
        references = [example.get("references") or [example["target"]] for example in decoded]
        texts = [sample["output"] for sample in outputs]
        of_outputs = text_metrics.output_metrics(wanted, texts, references, self.evaluation.bleu_tokenize)
        counts = {} if likelihood.examples == len(examples) else dict.fromkeys(of_tokens, likelihood.examples)
        if counts:
            others = f"; {', '.join(of_outputs)} cover all of them" if of_outputs else ""
            notes.append(
                f"{', '.join(of_tokens)} cover the {likelihood.examples:,} of {counted(len(examples), 'example')} that were "
                f"not skipped{others}"
            )
        if cut:
            notes.append(f"truncated {cut:,} of {counted(len(decoded), 'source')} to the model's context")
        left = clock.tally(1 for _ in rest)
        results = of_tokens | of_outputs
        evaluated = self._evaluated(split, len(examples), left, results, outputs, kept, notes, clock, counts)
        return replace(
            evaluated,
            outputs=self._scored(outputs, references, wanted) if score_each else [],
            extremes=self._extremes(outputs, references, wanted) if kept and len(outputs) == len(examples) else None,
        )

    def _of_text(
        self,
        model: AnyModel,
        split: Split,
        examples: list[Example],
        limit: int | None,
        generation: Generation | None,
        kept: int,
        clock: Clock,
    ) -> Evaluated:
        """Likelihood of running text, and the model's continuations of some of it."""
        wanted, _ = self.evaluation.wanted(pairs=False)
        likelihood, notes, left = self._likelihood(model, split, self.source, limit, clock)
        run = in_training(model, self._words, task_of(model, pairs=False))
        samples = self._continued(run, examples[:kept], self._decoding(generation))
        rows, results = likelihood.rows, likelihood.results(wanted)
        evaluated = self._evaluated(split, rows, left, results, samples, kept, notes, clock)
        return replace(evaluated, unit="row")

    def _evaluated(
        self,
        split: Split,
        examples: int,
        left: int | None,
        results: dict[str, text_metrics.MetricValue],
        samples: list[dict[str, Any]],
        kept: int,
        notes: list[str],
        clock: Clock,
        counts: dict[str, int] | None = None,
    ) -> Evaluated:
        return Evaluated(
            split,
            examples,
            {name: result.value for name, result in results.items()},
            {name: result.details for name, result in results.items() if result.details},
            evenly(samples, kept),
            notes,
            clock.seconds,
            None if left is None else examples + left,
            counts or {},
        )

    def _decoding(self, generation: Generation | None) -> Generation:
        settings = generation or self.generation
        return settings.replace(seed=self.seed if settings.seed is None else settings.seed)

    @property
    def _words(self) -> Tokenizer:
        assert self.tokenizer is not None
        return self.tokenizer

    def _of_task(
        self, task: Task, model: AnyModel, split: Split, limit: int | None, kept: int, clock: Clock
    ) -> Evaluated:
        """The terms of the loss, and the task's metric."""
        need(f"evaluation of the task {task.kind}", *task.libraries)
        metric, batching = task.metric(self.tokenizer), self.batching.replace(workers=0, shuffle=False)
        source, seq2seq, rows, terms = self.source, model.is_encoder_decoder, 0, TermSums()
        rest: Iterable[int] = ()
        if limit is not None and not isinstance(task, TextTask):  # batches are sorted by length: take the first before
            table = source.table(split, seed=self.seed)
            taken, stop = first(table, limit)
            source, limit, rest = FixedExamples(entries=taken), None, goods(table, stop)
        with (
            stream(
                source, self.tokenizer, batching, seq2seq=seq2seq, task=task, split=split, seed=self.seed, epochs=1
            ) as batches,
            torch.inference_mode(),
        ):
            shared = type(metric).evaluate is TaskMetric.evaluate and type(metric).update is not TaskMetric.update

            def compute(batch: Batch) -> tuple[dict[str, TermValue], Any]:
                moved = batch.to(model.device)
                values = values_of(terms_of(self.objective, model, moved))
                return values, model_outputs(model, moved) if shared else None

            chosen = up_to(limit, batches, lambda batch: len(batch.texts) or batch.rows)
            for batch, (values, outputs) in in_turns(self.ranks, chosen, compute, self.together):
                rows += len(batch.texts) or batch.rows
                terms.add(values)
                if shared:
                    metric.take_outputs(outputs, batch.to(model.device))
                else:
                    metric.evaluate(model, batch.to(model.device))
            notes = skip_notes(batches)
            if limit is not None:
                rest = (len(batch.texts) or batch.rows for batch in batches)
            left = clock.tally(rest)
        results = {name: text_metrics.MetricValue(mean, "") for name, mean in terms.means.items()} | metric.results()
        evaluated = self._evaluated(split, rows, left, results, metric.samples(kept), kept, notes, clock)
        return replace(evaluated, confusions=metric.confusions(), extremes=metric.extremes() if kept else None)

    def _examples(self, entries: Iterator[Example], split: Split, limit: int | None, kept: int) -> list[Example]:
        """The examples to generate outputs for: all pairs up to the limit, or a few samples of running text."""
        first = next(entries, None)
        if first is None:
            raise ValueError(f"the {split} split has no examples to evaluate on")
        most = limit if "source" in first else max(kept, 1)
        return [first, *itertools.islice(entries, None if most is None else most - 1)]

    def _likelihood(
        self, model: AnyModel, split: Split, source: Source, limit: int | None, clock: Clock
    ) -> tuple[Likelihood, list[str], int | None]:
        """The objective's terms over the first rows of a source, notes on its data, and the number of rows left."""
        total = Likelihood()
        batching = self.batching.replace(workers=0, shuffle=False)
        seq2seq = model.is_encoder_decoder
        with stream(source, self._words, batching, seq2seq=seq2seq, split=split, seed=self.seed, epochs=1) as batches:
            chosen = up_to(limit, batches, _rows)
            for batch, (values, size) in in_turns(
                self.ranks, chosen, partial(self._likelihood_of, model), self.together
            ):
                total.rows += _rows(batch)
                total.size += size
                total.terms.add(values)
            total.examples = batches.report.read - batches.report.skipped.total()
            return total, skip_notes(batches), clock.tally(map(_rows, batches))

    @torch.inference_mode()
    def _likelihood_of(self, model: AnyModel, batch: Batch) -> tuple[dict[str, TermValue], int]:
        """The objective's terms of a batch, and the bytes of its texts."""
        values = values_of(terms_of(self.objective, model, batch.to(model.device)))
        if batch.texts:
            return values, sum(len(text["target"].encode()) for text in batch.texts)
        if batch.labels is None:
            return values, 0
        texts = (self._words.decode(row[row != IGNORE].tolist()) for row in batch.labels)
        return values, sum(len(text.encode()) for text in texts)

    def _outputs(
        self, run: LoadedModel, examples: list[Example], settings: Generation
    ) -> tuple[list[dict[str, str]], int]:
        """An output for each example, and the number of sources truncated to the model's context."""
        context = run.model.max_positions
        longest = None if context is None else context if run.task == "translate" else context - 1
        prompts = [run.encode(example["source"]) for example in examples]
        ranks = ALONE if self.together else self.ranks
        mine = range(ranks.rank, len(prompts), ranks.size)
        generated = run.outputs_of([prompts[i][:longest] for i in mine], settings, numbers=mine)
        of_ranks = ranks.gather([outputs[0].text for outputs in generated])
        texts = [of_ranks[i % ranks.size][i // ranks.size] for i in range(len(prompts))]
        cut = sum(longest is not None and len(prompt) > longest for prompt in prompts)
        samples = [
            {"source": example["source"], "target": example["target"], "output": text}
            for example, text in zip(examples, texts, strict=True)
        ]
        return samples, cut

    def _scored(
        self, samples: list[dict[str, str]], references: list[list[str]], wanted: tuple[Metric, ...]
    ) -> list[dict[str, Any]]:
        """Every output with its references and its own metrics."""
        tokenize, rows = self.evaluation.bleu_tokenize, []
        for sample, texts in zip(samples, references, strict=True):
            scores = text_metrics.output_metrics(wanted, [sample["output"]], [texts], tokenize, sentence=True)
            rows.append(
                {
                    "source": sample["source"],
                    "hypothesis": sample["output"],
                    "references": list(texts),
                    "scores": {name: result.value for name, result in scores.items()},
                }
            )
        return rows

    def _extremes(
        self, samples: list[dict[str, str]], references: list[list[str]], wanted: tuple[Metric, ...]
    ) -> Extremes | None:
        """The outputs with the best and the worst ROUGE-L, if that is measured, or else chrF if its library is installed."""
        by: Metric = "rougeL" if "rougeL" in wanted else "chrf"
        if missing([by]):
            return None
        ranking = Ranking(by)
        for sample, texts in zip(samples, references, strict=True):
            score = text_metrics.output_metrics([by], [sample["output"]], [texts])[by].value
            ranking.add(score, partial(dict, sample), len(sample["source"]))
        return ranking.extremes()

    def _continued(self, run: LoadedModel, examples: list[Example], settings: Generation) -> list[dict[str, Any]]:
        """The beginnings of running texts, and the model's continuations."""
        if examples and "messages" in examples[0]:
            return self._replied(run, examples, settings)
        context = run.model.max_positions
        length = PROMPT if context is None else min(PROMPT, context // 2)
        starts = [self._words.decode(self._words.encode(e["text"][:2000])[:length]) for e in examples]
        starts = [start for start in starts if start.strip()]
        generated = run.outputs_of([run.encode(start) for start in starts], settings)
        return [{"source": start, "output": outputs[0].text} for start, outputs in zip(starts, generated, strict=True)]

    def _replied(self, run: LoadedModel, examples: list[Example], settings: Generation) -> list[dict[str, Any]]:
        """Conversations up to the assistant's last turn ("messages"), that turn as the reference, and the model's reply.

        Conversations without a turn to reply to, or too long for the model's context, are left out.
        """
        context = run.model.max_positions
        prompts, references, tools = [], [], []
        for example in examples:
            messages = json.loads(example["messages"])
            at = last_reply(messages)
            if at is None:
                continue
            described = json.loads(example.get("tools", "null"))
            if context is None or len(self._words.chat.prompt(messages[:at], described)) < context:
                prompts.append(messages[:at])
                tools.append(described)
                references.append(text_of(messages[at]))
        generated = replies(run, prompts, settings, tools=tools) if prompts else []
        return [
            {
                "source": "\n".join(f"{m['role']}: {text_of(m)}" for m in prompt),
                "messages": [{"role": m["role"], "content": text_of(m)} for m in prompt],
                "target": reference,
                "output": outputs[0].text,
                "graded": True,
            }
            for prompt, reference, outputs in zip(prompts, references, generated, strict=True)
        ]


def skip_notes(batches: Stream) -> list[str]:
    """Notes on skipped and truncated examples. Notes on the data themselves are printed before training."""
    report = replace(batches.report, notes=())
    warning = "most examples were skipped: " if report.mostly_skipped else ""
    return [f"{warning}{report}"] if report.skipped or report.cut else []


def _rows(batch: Batch) -> int:
    return len(batch.labels) if batch.labels is not None else 0


def task_of(model: AnyModel, pairs: bool) -> Use:
    return "translate" if model.is_encoder_decoder else "answer" if pairs else "continue"


def with_baselines(result: Evaluated, recipe: Recipe, split: Split, limit: int | None) -> Evaluated:
    """The evaluation of the first `limit` examples of a split with simple methods beside it, and what to try."""
    try:
        found = baselines_of(recipe, split, limit, result.confusions)
    except (ValueError, MemoryError) as error:  # the evaluation counts without a comparison
        return replace(result, notes=[*result.notes, f"no simple method was compared: {error}"])
    notes = advice(recipe, found, result.metrics, any("over-long cut" in note for note in result.notes))
    return replace(result, baselines=[one._asdict() for one in found], notes=[*result.notes, *notes])


def evaluate_run(
    run: Run,
    split: str = "test",
    data: str | Sequence[str] = (),
    *,
    num_beams: int | None = None,
    max_examples: int | Literal["all"] | None = None,
    score_each: bool = False,
    evaluation: str | Sequence[str] = (),
    task: str | Sequence[str] = (),
    baselines: bool = False,
) -> Evaluated:
    """Evaluate a loaded run on a split of its data. `data` are settings of the data to change, such as `test_path=my.tsv`.

    `max_examples` is the number of examples, or "all"; by default the recipe's `evaluation.test_examples`.
    With `score_each`, the result has every output of pairs with its metrics. `evaluation` are settings of the evaluation to
    change, such as `metrics=[bleu,ter]`, and `task` settings of the task's decoding, such as `lm=words.arpa`. With
    `baselines`, simple methods are measured on the same examples.
    """
    from .other_data import as_trained, check_changed, notes_on_other

    if run.recipe is None:
        raise ValueError(f"{run.name} has no recipe.yaml, which names its data; give a run that qkv trained")
    if isinstance(max_examples, int) and max_examples < 1:
        raise ValueError(f"max_examples is 'all' or a number of at least 1, not {max_examples}")
    changes = [f"data.{item.removeprefix('data.')}" for item in several.texts(data, "data")]
    changes += [f"evaluation.{item.removeprefix('evaluation.')}" for item in several.texts(evaluation, "evaluation")]
    decoding, left = changed_decoding(run.recipe.task, several.texts(task, "task"), num_beams)
    recipe = run.recipe.change([*changes, *decoding])
    recipe.evaluation.check_again(run.recipe.evaluation, None if recipe.task is None else recipe.task.kind, left)
    settings = (recipe.batching, recipe.evaluation, run.generation, recipe.objective, recipe.seed, recipe.task)
    evaluator = Evaluator(as_trained(recipe.data, recipe.task), run.tokenizer, *settings)
    chosen = next((name for name in SPLITS if name == split), None)
    if chosen is None:
        raise ValueError(f"there is no split {brief(split)}; {nearest(split, SPLITS)}")
    check_changed(recipe.data, chosen, several.texts(data, "data"))
    most = recipe.evaluation.test_examples if max_examples is None else max_examples
    limit = None if most == "all" else most
    generation = run.generation if num_beams is None else run.settings(num_beams=num_beams)
    if recipe.task is not None and data:
        recipe.task.check_fields(next(recipe.data.examples(chosen, shuffle=False), {}), recipe.data)
    result = evaluator(run.model, chosen, limit, generation, score_each=score_each)
    if data:
        result = replace(
            result, notes=[*notes_on_other(recipe.data, run.recipe.data, chosen, recipe.task), *result.notes]
        )
    return with_baselines(result, recipe, chosen, limit) if baselines else result
