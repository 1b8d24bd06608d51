"""Replies to conversations, by the chat template of a model's tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..generation import Generation
from ..tokenizers.chat.conversations import Messages
from .loaded import LoadedModel
from .text import Output, TextModel
from .uses import advice


@dataclass(frozen=True)
class Assistant(TextModel):
    """A language model that replies. It reads of a conversation what it was trained on up to the assistant's turn, and its
    reply also ends with the token that the chat template ends such a turn with."""

    @property
    def ends(self) -> list[int]:
        return sorted({*super().ends, *self.tokenizer.chat.ends})

    def replies(
        self,
        conversations: Sequence[Messages],
        settings: Generation,
        *,
        stop: Sequence[str] = (),
        scores: bool = False,
    ) -> list[list[Output]]:
        """`settings.num_samples` replies to each conversation, see `outputs`."""
        prompts = [self.tokenizer.chat.prompt(messages) for messages in conversations]
        return self.outputs_of(prompts, settings, stop=stop, scores=scores)

    def stream_reply(
        self, messages: Messages, settings: Generation, emit: Callable[[str], None], *, stop: Sequence[str] = ()
    ) -> None:
        """One reply, handed to `emit` piece by piece, as it comes."""
        self.stream_of(self.tokenizer.chat.prompt(messages), settings, emit, stop=stop)


def assistant(run: LoadedModel) -> Assistant:
    """What replies by a run's model. Raises ValueError where it is no language model, or has no chat template."""
    text = run.text_model
    if run.model.is_encoder_decoder or getattr(run.model, "decoder", None) is None:
        raise ValueError(
            f"{run.path or 'this run'} holds no language model, and only such a one replies to conversations; {advice(run)}"
        )
    try:
        text.tokenizer.chat  # noqa: B018  (made now, so that what is wrong with it is told with the run's name)
    except ValueError as error:
        raise ValueError(f"{run.path or 'this run'}: {error}") from None
    return Assistant(text.model, text.tokenizer, "answer", text.ids)


def chat(
    run: LoadedModel,
    messages: Messages,
    emit: Callable[[str], None] | None = None,
    *,
    stop: Sequence[str] = (),
    **options: Any,
) -> str:
    """The assistant's reply to a conversation, `[{"role": "user", "content": "Hello!"}]`.

    It is handed to `emit`, where that is given, piece by piece as it comes. Options are the fields of `Generation`. Raises
    ValueError where the tokenizer has no chat template, or where the template refuses the conversation.
    """
    speaker, settings = assistant(run), run.generation.replace(options)
    if emit is None:
        return speaker.replies([messages], settings, stop=stop)[0][0].text
    pieces: list[str] = []

    def tell(piece: str) -> None:
        pieces.append(piece)
        emit(piece)

    speaker.stream_reply(messages, settings, tell, stop=stop)
    return "".join(pieces)
