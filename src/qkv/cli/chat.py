"""`qkv chat`: a conversation with a language model."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .files_beside import FilesInTurn
from .generate import (
    SETTINGS_ADVICE,
    MaxNew,
    MinP,
    Repetition,
    Seed,
    Set,
    Stop,
    System,
    Temperature,
    TopK,
    TopP,
    generation_settings,
)
from .options import Device, ImageFiles, JsonLines, RunPath, SoundFiles, VideoFiles
from .say import echo
from .texts import dumps, load_run, note_files, read, warn_of_settings


def chat(
    context: typer.Context,
    run: RunPath,
    messages: Annotated[
        list[str] | None, typer.Argument(metavar="[MESSAGE]...", help="Messages. Without any, lines of standard input.")
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
    image: ImageFiles = None,
    sound: SoundFiles = None,
    video: VideoFiles = None,
    json: JsonLines = False,
    device: Device = "auto",
) -> None:
    """Chat with a language model, using its chat template; for independent messages, `qkv generate --chat`.

    Each MESSAGE, or line of standard input, is answered in the context of the conversation so far. Files replace
    `<image>` and `<sound>` in the messages, or come before the first message. Options override the model's
    `generation_config.json`.
    """
    from ..runs.inference.chat import check_replies, stream_reply
    from ..serving.engine.replies import Replies

    loaded = load_run(run, "chat", device)
    one_reply = {"num_beams": 1, "num_samples": 1}
    check_replies(loaded)
    settings = loaded.settings(**one_reply | generation_settings(context, set_))
    if settings.num_beams > 1 or settings.num_samples > 1:
        raise ValueError("a conversation has one reply to each message; leave out num_beams and num_samples")
    warn_of_settings(messages, SETTINGS_ADVICE)
    note_files(messages or (), "; to send its lines as messages: < FILE")
    files = FilesInTurn(loaded, image, sound, video, messages)
    engine = Replies(loaded) if Replies.serves(loaded, settings) else None
    conversation: list[dict[str, Any]] = [] if system is None else [{"role": "system", "content": system}]
    for message in (text for texts in read(messages, 1) for text in texts):
        if not message.strip():
            echo(dumps({"message": message, "reply": None}) if json else "")
            continue
        conversation.append({"role": "user", "content": files.content(message)})
        pieces: list[str] = []

        def emit(piece: str, pieces: list[str] = pieces) -> None:
            pieces.append(piece)
            if not json:
                echo(piece, nl=False)

        if engine is None:
            stream_reply(loaded, conversation, settings, emit, stop=stop or ())
        else:
            engine.stream(conversation, settings, emit, stop or ())
        reply = "".join(pieces)
        conversation.append({"role": "assistant", "content": reply})
        echo(dumps({"message": message, "reply": reply}) if json else "")
    files.check_used()
