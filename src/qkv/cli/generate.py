"""`qkv generate` and `qkv translate`: continue or translate texts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .files_beside import FilesBeside
from .options import (
    Column,
    Device,
    EnsembleMode,
    EnsembleWeights,
    ImageFiles,
    JsonLines,
    OutTable,
    Overwrite,
    RunPath,
    RunsAndTexts,
    SoundFiles,
    VideoFiles,
)
from .say import echo
from .texts import asked, dumps, each, load_run, load_runs, uncollected, warn_of_settings

if TYPE_CHECKING:
    from ..generation.settings import Generation
    from ..runs.inference.output import Output
    from ..runs.inference.run import Run

Beams = Annotated[int | None, typer.Option(metavar="N", help="Beam search with N beams; 1 is greedy.")]
LengthPenalty = Annotated[
    float | None, typer.Option(metavar="X", help="Length penalty of beam search; above 0 favors longer outputs.")
]
MaxNew = Annotated[int | None, typer.Option(metavar="N", help="Generate at most N new tokens.")]
MinNew = Annotated[int | None, typer.Option(metavar="N", help="Generate at least N new tokens.")]
Temperature = Annotated[
    float | None, typer.Option(metavar="X", help="Sample with temperature X: below 1 sharper, above 1 flatter.")
]
TopK = Annotated[int | None, typer.Option(metavar="N", help="Sample from the N most probable tokens.")]
TopP = Annotated[
    float | None,
    typer.Option(metavar="X", help="Sample from the most probable tokens whose probabilities sum to X."),
]
MinP = Annotated[
    float | None,
    typer.Option(metavar="X", help="Sample from tokens at least X times as probable as the most probable one."),
]
Repetition = Annotated[
    float | None, typer.Option(metavar="X", help="Repetition penalty; above 1 makes earlier tokens less likely.")
]
NoRepeat = Annotated[int | None, typer.Option(metavar="N", help="Repeat no sequence of N tokens.")]
Stop = Annotated[list[str] | None, typer.Option(metavar="TEXT", help="Stop when TEXT has been generated; repeatable.")]
Samples = Annotated[
    int | None, typer.Option(metavar="N", help="Outputs per text: N samples, or the best N of the beams.")
]
Scores = Annotated[bool, typer.Option("--scores", help="Print the score of each output before it.")]
Seed = Annotated[int | None, typer.Option(metavar="N", help="Seed of sampling.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other generation setting, such as `cache=int8`; repeatable."),
]
Chat = Annotated[bool, typer.Option("--chat", help="Reply to each TEXT as a message, using the model's chat template.")]
System = Annotated[str | None, typer.Option(metavar="TEXT", help="The system message.")]
Stream = Annotated[bool, typer.Option("--stream", help="Print tokens as they are generated, one text at a time.")]
Draft = Annotated[
    str | None,
    typer.Option(metavar="RUN", help="Speculative decoding: a smaller run with the same tokenizer proposes tokens."),
]
Speculate = Annotated[
    str | None,
    typer.Option(
        metavar="HOW",
        help="Speculative decoding: `lookup` proposes tokens that followed the same tokens earlier in the text, "
        "`early-exit:K` the predictions of the first K layers. Outputs stay the same.",
    ),
]
JsonSchema = Annotated[
    Path | None,
    typer.Option("--json-schema", metavar="FILE", help="Write only JSON that the JSON schema in FILE allows."),
]
Regex = Annotated[
    str | None,
    typer.Option(metavar="EXPRESSION", help="Write only a text that the whole regular expression matches."),
]
Choices = Annotated[
    str | None, typer.Option(metavar="TEXT,TEXT…", help="Write one of these texts, separated by commas.")
]
SrcLang = Annotated[
    str | None, typer.Option(metavar="CODE", help="Language of the texts, for models of many languages: `eng_Latn`.")
]
TgtLang = Annotated[str | None, typer.Option(metavar="CODE", help="Language of the outputs: `deu_Latn`, `fr_XX`.")]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        help="Print the time to the first token, tokens/s and the number of accepted proposals on standard error.",
    ),
]


def generate(
    context: typer.Context,
    run: RunPath,
    texts: RunsAndTexts = None,
    num_beams: Beams = None,
    length_penalty: LengthPenalty = None,
    max_new_tokens: MaxNew = None,
    min_new_tokens: MinNew = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: Repetition = None,
    no_repeat_ngram_size: NoRepeat = None,
    stop: Stop = None,
    num_samples: Samples = None,
    scores: Scores = False,
    seed: Seed = None,
    stream: Stream = False,
    set_: Set = None,
    chat: Chat = False,
    system: System = None,
    draft: Draft = None,
    speculate: Speculate = None,
    image: ImageFiles = None,
    sound: SoundFiles = None,
    video: VideoFiles = None,
    ensemble_weights: EnsembleWeights = None,
    ensemble_mode: EnsembleMode = None,
    json_schema: JsonSchema = None,
    regex: Regex = None,
    choices: Choices = None,
    src_lang: SrcLang = None,
    tgt_lang: TgtLang = None,
    verbose: Verbose = False,
    out: OutTable = None,
    column: Column = None,
    overwrite: Overwrite = False,
    json: JsonLines = False,
    device: Device = "auto",
) -> None:
    """Continue texts with a language model, or write what an encoder–decoder was trained to write (`qkv translate`).

    Without any TEXT, reads lines of standard input; a blank line gives a blank line. Options override the run's
    `generation_config.json`.
    """
    with uncollected():
        from ..generation.pace import watched

        command = "chat" if chat else context.info_name or "generate"
        loaded, texts = load_runs(run, texts, command, device, ensemble_weights, ensemble_mode)
    loaded = _constrained(loaded, json_schema, regex, choices)
    loaded = _between(loaded, src_lang, tgt_lang)
    settings = loaded.settings(**generation_settings(context, set_))  # checked before texts are read
    warn_of_settings(texts, SETTINGS_ADVICE)
    if stream and (json or scores or out is not None or settings.num_samples > 1):
        raise ValueError("--stream prints one output as it comes; leave out --json, --scores, --out and --num-samples")
    if system is not None and not chat:
        raise ValueError("--system gives the system message of a chat; use it with --chat")
    drafting = None if draft is None else load_run(draft, "generate", device)
    settings = _speculating(settings, loaded, drafting, chosen=speculate is not None)
    options: dict[str, Any] = {"stop": stop or ()} | ({} if chat or drafting is None else {"draft": drafting})
    question = asked(texts, loaded, context.info_name or "generate", out, column, overwrite)
    files = FilesBeside(loaded, image, sound, video)
    question.texts = files.beside(question.texts)
    folder = question.table.path.parent if question.table else Path()
    model = _Replies(loaded, system, drafting, folder) if chat else loaded
    every: list[Output] = []
    with watched() as pace:
        if stream:
            for _, output in each(
                question.texts, lambda part: _stream(model, files.of(part), settings, options), 1, table=question.table
            ):
                echo()
                every.extend([output] if output else [])
        else:
            options["scores"] = scores or json

            def answer(chunk: list[str]) -> list[list[Output]]:
                outputs = model.outputs(files.of(chunk), settings, **options)
                every.extend(itertools.chain(*outputs))
                return outputs

            question.answer(
                answer,
                lambda text, outputs: _print(text, outputs or [], scores, json),
                lambda outputs: _columns(outputs, scores),
            )
    if verbose:
        since = "" if pace.first is None else f", {_since_start(pace.first):.2f} s after the start of the process"
        echo(pace.text(sum(len(output.tokens) for output in every)) + since, err=True)
        echo(_report(every), err=True)


def _between(run: Run, src_lang: str | None, tgt_lang: str | None) -> Run:
    """The run between two languages. Raises ValueError if one alone is given."""
    if src_lang is None and tgt_lang is None:
        return run
    if src_lang is None or tgt_lang is None:
        raise ValueError("--src-lang and --tgt-lang go together: the language of the texts, and that of the outputs")
    return run.between(src_lang, tgt_lang)


def _since_start(moment: float) -> float:
    """Seconds from the start of this process to a time of `time.perf_counter`."""
    import time

    import psutil

    return time.time() - psutil.Process().create_time() - (time.perf_counter() - moment)


def _constrained(run: Run, schema: Path | None, regex: str | None, choices: str | None) -> Run:
    """The run with the grammar of the command line, if there is one."""
    if sum(each is not None for each in (schema, regex, choices)) > 1:
        raise ValueError("give one of --json-schema, --regex and --choices: an output follows one grammar")
    if schema is None and regex is None and choices is None:
        return run
    from ..generation.grammar.rules import LARGEST, Grammar

    if schema is not None:
        with schema.open(encoding="utf-8") as file:
            return run.constrained(Grammar.json_schema(file.read(LARGEST + 1)))
    return run.constrained(Grammar.regex(regex) if regex is not None else Grammar.choices((choices or "").split(",")))


SETTINGS_ADVICE = "give generation settings with --set KEY=VALUE"


def generation_settings(context: typer.Context, assignments: list[str] | None) -> dict[str, Any]:
    """The generation settings of a command line, from their own options and from `--set`."""
    from ..generation.settings import Generation

    settings = {name: context.params[name] for name in Generation.model_fields if context.params.get(name) is not None}
    if not assignments:
        return settings
    from ..runs.recipes.overrides import parse

    for key, value in (parse(text.removeprefix("generation.")) for text in assignments):
        if key in settings:
            raise ValueError(f"{key} is given twice; give it once")
        settings[key] = value
    return settings


def _speculating(settings: Generation, run: Run, draft: Run | None, chosen: bool) -> Generation:
    """The settings with the draft run, which takes the place of a way to speculate that the command line did not choose.

    Raises ValueError for a draft with another tokenizer, and if draft and settings contradict each other.
    """
    from ..generation.speculation import DraftModel, check_draft
    from ..runs.inference.loaded import draft_for

    if draft is not None and not (chosen or isinstance(settings.speculate, DraftModel)):
        settings = settings.replace(speculate="draft")
    check_draft(settings.speculate, draft_for(run, draft))
    return settings


translate_help = """Translate texts with an encoder–decoder; the same as `qkv generate`.

Without any TEXT, reads lines of standard input; a blank line gives a blank line. Options override the run's
`generation_config.json`.
"""


class _Replies:
    """Reply to independent messages, with the methods by which a run continues texts."""

    def __init__(self, run: Run, system: str | None, draft: Run | None, folder: Path) -> None:
        from ..runs.inference.chat import check_replies, replies, stream_reply
        from ..runs.inference.loaded import draft_for

        draft_model = draft_for(run, draft)
        check_replies(run)
        self._replies = partial(replies, run, draft=draft_model)
        self._stream_reply = partial(stream_reply, run, draft=draft_model)
        self._run, self._folder = run, folder
        self._before = [] if system is None else [{"role": "system", "content": system}]

    def outputs(self, texts: list[str], settings: Generation, **options: Any) -> list[list[Output]]:
        return self._replies([self._conversation(text) for text in texts], settings, **options)

    def stream(self, text: str, emit: Callable[[str], None], settings: Generation, **options: Any) -> Output:
        return self._stream_reply(self._conversation(text), settings, emit, **options)

    def _conversation(self, text: str) -> list[dict[str, Any]]:
        """Return one message with its files, or, if the text is JSON, the messages in it."""
        from ..runs.inference.reading.beside import content, conversation_in

        said = conversation_in(text, self._folder)
        return [*self._before, *(said or [{"role": "user", "content": content(self._run, text)}])]


def _print(text: str, outputs: list[Output], scores: bool, json: bool) -> None:
    if json:
        echo(dumps({"text": text, "outputs": [_fields(output) for output in outputs]}))
    elif not outputs:
        echo()
    for output in outputs if not json else ():
        echo(f"{output.score:.4f}\t{output.text}" if scores else output.text)


def _columns(outputs: list[Output], scores: bool) -> dict[str, Any]:
    """Return the outputs for a text as columns: `output`, `output_2`, …, and `score`, … if scores are requested."""
    columns: dict[str, Any] = {}
    for number, output in enumerate(outputs, 1):
        end = "" if number == 1 else f"_{number}"
        columns |= {f"output{end}": output.text} | ({f"score{end}": output.score} if scores else {})
    return columns


def _fields(output: Output) -> dict[str, Any]:
    """The fields of an output; `acceptance` only if there is one."""
    fields = asdict(output)
    if output.acceptance is None:
        del fields["acceptance"]
    return fields


def _stream(run: Run | _Replies, texts: list[str], settings: Generation, options: dict[str, Any]) -> Iterator[Output]:
    for text in texts:
        yield run.stream(text, lambda piece: echo(piece, nl=False), settings, **options)


def _report(outputs: list[Output]) -> str:
    """One line about the acceptance of proposed tokens."""
    from ..generation import Acceptance

    counts = [output.acceptance for output in outputs if output.acceptance is not None]
    if not counts:
        return "no speculative decoding; choose it with --speculate or --draft"
    total = sum(counts, Acceptance())
    tokens = sum(len(output.tokens) for output in outputs)
    share = f" ({total.accepted / total.proposed:.0%})" if total.proposed else ""
    return (
        f"speculative decoding: {total.accepted:,} of {total.proposed:,} proposed tokens accepted{share}, "
        f"{tokens / total.passes:.2f} tokens in each pass of the model"
    )
