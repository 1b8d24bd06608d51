"""`qkv generate` and `qkv translate`: texts in, continuations or translations out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .say import echo
from .texts import CHUNK, Device, Json, RunPath, Texts, dumps, each, note_settings, opened

if TYPE_CHECKING:
    from ..generation.settings import Generation
    from ..inference.run import Run
    from ..inference.text import Output

Beams = Annotated[int | None, typer.Option(metavar="N", help="Beam search with N beams; 1 is greedy.")]
LengthPenalty = Annotated[
    float | None, typer.Option(metavar="X", help="Above 0 favors longer outputs of a beam search.")
]
MaxNew = Annotated[int | None, typer.Option(metavar="N", help="At most N new tokens.")]
MinNew = Annotated[int | None, typer.Option(metavar="N", help="At least N new tokens.")]
Temperature = Annotated[float | None, typer.Option(metavar="X", help="Sample; below 1 sharper, above 1 flatter.")]
TopK = Annotated[int | None, typer.Option(metavar="N", help="Sample from the N likeliest tokens.")]
TopP = Annotated[
    float | None, typer.Option(metavar="X", help="Sample from the likeliest tokens that reach probability X.")
]
MinP = Annotated[
    float | None, typer.Option(metavar="X", help="Sample from tokens at least X as likely as the likeliest.")
]
Repetition = Annotated[float | None, typer.Option(metavar="X", help="Above 1 makes tokens seen before less likely.")]
NoRepeat = Annotated[int | None, typer.Option(metavar="N", help="No N tokens in a row occur twice.")]
Stop = Annotated[list[str] | None, typer.Option(metavar="TEXT", help="End where TEXT appears; repeatable.")]
Samples = Annotated[int | None, typer.Option(metavar="N", help="N outputs for each text: samples, or the best beams.")]
Scores = Annotated[bool, typer.Option("--scores", help="Print each output's score before it.")]
Seed = Annotated[int | None, typer.Option(metavar="N", help="Makes samples repeatable.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Any other setting of generation, such as `cache=int8`; repeatable."
    ),
]
Chat = Annotated[
    bool, typer.Option("--chat", help="Each TEXT is a message; the output is the reply, by the model's chat template.")
]
System = Annotated[
    str | None, typer.Option(metavar="TEXT", help="What the assistant is told before anything is said to it.")
]
Stream = Annotated[bool, typer.Option("--stream", help="Print tokens as they come, one text at a time.")]


def generate(
    context: typer.Context,
    run: RunPath,
    texts: Texts = None,
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
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Continue texts with a language model, or translate them with an encoder–decoder.

    Reads standard input line by line when no TEXT is given; a blank line gives a blank line. What is not said here is as
    the run's `generation_config.json` says.
    """
    loaded = opened(run, "chat" if chat else context.info_name or "generate", device)
    settings = loaded.settings(**chosen(context, set_))  # checked before anything is read
    note_settings(texts, SETTINGS)
    if stream and (json or scores or settings.num_samples > 1):
        raise ValueError("--stream prints one output as it comes; leave out --json, --scores and --num-samples")
    if system is not None and not chat:
        raise ValueError("--system is what an assistant is told; give it with --chat")
    speaker = _Replies(loaded, system) if chat else loaded
    if stream:
        for _ in each(texts, lambda asked: _stream(speaker, asked, settings, stop), 1):
            echo()
        return
    options: dict[str, Any] = {"stop": stop or (), "scores": scores or json}
    for text, outputs in each(texts, lambda asked: speaker.outputs(asked, settings, **options), CHUNK):
        _print(text, outputs or [], scores, json)


SETTINGS = "give settings of generation by --set KEY=VALUE"


def chosen(context: typer.Context, more: list[str] | None) -> dict[str, Any]:
    """The settings of generation that a command line gives, by options of their own or by `--set`."""
    from ..generation.settings import Generation
    from ..recipes.overrides import parse

    found = {name: context.params[name] for name in Generation.model_fields if context.params.get(name) is not None}
    for key, value in (parse(text.removeprefix("generation.")) for text in more or ()):
        if key in found:
            raise ValueError(f"{key} is given twice; leave out one of both")
        found[key] = value
    return found


translate_help = """Translate texts: `qkv generate` for encoder–decoders.

Reads standard input line by line when no TEXT is given; a blank line gives a blank line. What is not said here is as the
run's `generation_config.json` says.
"""


class _Replies:
    """What answers messages that have nothing to do with one another, as a run continues texts."""

    def __init__(self, run: Run, system: str | None) -> None:
        from ..inference.chat import assistant

        self._assistant = assistant(run)
        self._before = [] if system is None else [{"role": "system", "content": system}]

    def outputs(self, texts: list[str], settings: Generation, **options: Any) -> list[list[Output]]:
        return self._assistant.replies([self._conversation(text) for text in texts], settings, **options)

    def stream(self, text: str, emit: Callable[[str], None], settings: Generation, **options: Any) -> None:
        self._assistant.stream_reply(self._conversation(text), settings, emit, **options)

    def _conversation(self, text: str) -> list[dict[str, str]]:
        return [*self._before, {"role": "user", "content": text}]


def _print(text: str, outputs: list[Output], scores: bool, json: bool) -> None:
    if json:
        echo(dumps({"text": text, "outputs": [asdict(output) for output in outputs]}))
    elif not outputs:
        echo()
    for output in outputs if not json else ():
        echo(f"{output.score:.4f}\t{output.text}" if scores else output.text)


def _stream(run: Run | _Replies, texts: list[str], settings: Generation, stop: list[str] | None) -> Iterator[None]:
    for text in texts:
        yield run.stream(text, lambda piece: echo(piece, nl=False), settings, stop=stop or ())
