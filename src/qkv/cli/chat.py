"""`qkv chat`: a conversation with a language model."""

from __future__ import annotations

from json import dumps
from typing import Annotated, Any

import typer

from .generate import MaxNew, MinP, Repetition, RunPath, Seed, Stop, System, Temperature, TopK, TopP
from .texts import Device, Json, read


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
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Talk with a language model, by the chat template that it was trained with.

    Each MESSAGE, or line of standard input, is answered with all that was said before it. What is not said here is as the
    model's `generation_config.json` says. For messages that have nothing to do with one another: `qkv generate --chat`.
    """
    from ..generate.settings import Generation
    from ..run.chat import assistant
    from ..run.load import load

    chosen = {name: context.params[name] for name in Generation.model_fields if context.params.get(name) is not None}
    loaded = load(run, device=device)
    speaker, settings = assistant(loaded), loaded.settings(**chosen, num_beams=1, num_samples=1)
    said: list[dict[str, Any]] = [] if system is None else [{"role": "system", "content": system}]
    for message in (text for texts in read(messages, 1) for text in texts if text.strip()):
        said.append({"role": "user", "content": message})
        pieces: list[str] = []

        def tell(piece: str, pieces: list[str] = pieces) -> None:
            pieces.append(piece)
            if not json:
                typer.echo(piece, nl=False)

        speaker.stream_reply(said, settings, tell, stop=stop or ())
        said.append({"role": "assistant", "content": "".join(pieces)})
        typer.echo(dumps({"message": message, "reply": said[-1]["content"]}, ensure_ascii=False) if json else "")
