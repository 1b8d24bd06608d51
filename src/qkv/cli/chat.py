"""`qkv chat`: a conversation with a language model."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .generate import SETTINGS, MaxNew, MinP, Repetition, Seed, Set, Stop, System, Temperature, TopK, TopP, chosen
from .say import echo
from .texts import Device, Json, RunPath, dumps, note_settings, opened, read


def chat(
    context: typer.Context,
    run: RunPath,
    messages: Annotated[
        list[str] | None, typer.Argument(metavar="[MESSAGE]...", help="Messages; without any, lines of standard input.")
    ] = None,
    system: System = None,
    max_new_tokens: MaxNew = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: Repetition = None,
    stop: Stop = None,
    seed: Seed = None,
    set_: Set = None,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Talk with a language model, by the chat template that it was trained with.

    Each MESSAGE, or line of standard input, is answered with all that was said before it. What is not said here is as the
    model's `generation_config.json` says. For messages that have nothing to do with one another: `qkv generate --chat`.
    """
    from ..inference.chat import assistant

    loaded = opened(run, "chat", device)
    alone = {"num_beams": 1, "num_samples": 1}  # one reply at a time
    speaker, settings = assistant(loaded), loaded.settings(**alone | chosen(context, set_))
    if settings.num_beams > 1 or settings.num_samples > 1:
        raise ValueError("a conversation has one reply to each message; leave out num_beams and num_samples")
    note_settings(messages, SETTINGS)
    said: list[dict[str, Any]] = [] if system is None else [{"role": "system", "content": system}]
    for message in (text for texts in read(messages, 1) for text in texts):
        if not message.strip():
            echo(dumps({"message": message, "reply": None}) if json else "")
            continue
        said.append({"role": "user", "content": message})
        pieces: list[str] = []

        def tell(piece: str, pieces: list[str] = pieces) -> None:
            pieces.append(piece)
            if not json:
                echo(piece, nl=False)

        speaker.stream_reply(said, settings, tell, stop=stop or ())
        said.append({"role": "assistant", "content": "".join(pieces)})
        echo(dumps({"message": message, "reply": said[-1]["content"]}) if json else "")
