"""Chat: a language model's replies to conversations, by the chat template of its tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from ...data.tokenizers.chat.messages import Messages, Tools
from ...generation import Generation
from ...generation.settings import GenerationOptions
from .loaded import LoadedModel, TextMedia, draft_for
from .output import Output
from .uses import advice, kind_of

if TYPE_CHECKING:
    from .reading.beside import Given


def replies(
    run: LoadedModel,
    conversations: Sequence[Messages],
    settings: Generation,
    *,
    tools: Sequence[Tools] | None = None,
    **options: Any,
) -> list[list[Output]]:
    """Return `settings.num_samples` replies to each conversation; `tools` are each conversation's.

    The end-of-turn token of the chat template also ends a reply. Options are as in `LoadedModel.outputs_of`.
    """
    described = tools or [None] * len(conversations)
    read = [_read(run, *one) for one in zip(conversations, described, strict=True)]
    prompts, media = [ids for ids, _ in read], [found for _, found in read]
    return replace(run, task="answer").outputs_of(
        prompts, settings, ends=run.words.chat.ends, media=media if any(media) else (), **options
    )


def stream_reply(
    run: LoadedModel,
    messages: Messages,
    settings: Generation,
    emit: Callable[[str], None],
    *,
    tools: Tools = None,
    **options: Any,
) -> Output:
    """Pass one reply to `emit` piece by piece, as it is generated. Options are as in `LoadedModel.stream_of`."""
    prompt, media = _read(run, messages, tools)
    return replace(run, task="answer").stream_of(
        prompt, settings, emit, ends=run.words.chat.ends, media=media or None, **options
    )


def _read(run: LoadedModel, messages: Messages, tools: Tools) -> tuple[list[int], TextMedia]:
    """The ids of a conversation up to the reply, and the media in it."""
    if not run.media:
        return run.words.chat.prompt(messages, tools), {}
    from .reading.beside import conversation

    return conversation(run, messages, tools)


def check_replies(run: LoadedModel) -> None:
    """Raise ValueError if the run is not a language model, or has no chat template."""
    if run.model.is_encoder_decoder or getattr(run.model, "decoder", getattr(run.model.spec, "decoder", None)) is None:
        raise ValueError(
            f"{run.name} is {kind_of(run)}, and only a language model replies to conversations; {advice(run)}"
        )
    try:
        run.words.chat  # noqa: B018  (built here, so an error names the run)
    except ValueError as error:
        raise ValueError(f"{run.name}: {error}") from None


def chat(
    run: LoadedModel,
    messages: Messages,
    emit: Callable[[str], None] | None = None,
    *,
    stop: str | Sequence[str] = (),
    draft: LoadedModel | None = None,
    tools: Tools = None,
    images: Given = None,
    sounds: Given = None,
    videos: Given = None,
    **options: Unpack[GenerationOptions],
) -> str:
    """Return the assistant's reply to a conversation, `[{"role": "user", "content": "Hello!"}]`.

    A content may be a list of parts, `[{"type": "image", "path": "a.png"}, {"type": "text", "text": "What is it?"}]`, if the
    model reads them. `images`, `sounds` and `videos` are the files of parts without one, or stand in the user's first
    message.

    `emit`, if given, receives it piece by piece, as it is generated. `tools` describe (as JSON schemas) the functions
    that the model may call, if the chat template has a place for them. Options are the fields of `Generation`. `draft`
    is a smaller run that proposes tokens. Raises ValueError if the tokenizer has no chat template, or the template
    refuses the conversation.
    """
    other = draft_for(run, draft)
    check_replies(run)
    settings = run.generation.replace(options)
    if images is not None or sounds is not None or videos is not None:
        from .reading.beside import with_files

        messages = with_files(run, messages, images, sounds, videos)
    if emit is None:
        return replies(run, [messages], settings, stop=stop, tools=[tools], draft=other)[0][0].text
    pieces: list[str] = []

    def receive(piece: str) -> None:
        pieces.append(piece)
        emit(piece)

    stream_reply(run, messages, settings, receive, stop=stop, tools=tools, draft=other)
    return "".join(pieces)
