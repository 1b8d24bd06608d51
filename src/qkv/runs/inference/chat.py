"""Chat: a language model's replies to conversations, by the chat template of its tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Unpack

from ...data.tokenizers.chat.messages import Messages, Tools
from ...generation import Generation
from ...generation.settings import GenerationOptions
from .drafts import with_draft
from .loaded import LoadedModel
from .text import Output, TextModel
from .uses import advice, kind_of


@dataclass(frozen=True)
class Assistant(TextModel):
    """A language model that replies to conversations. The end-of-turn token of the chat template also ends a reply."""

    @property
    def ends(self) -> list[int]:
        return sorted({*super().ends, *self.tokenizer.chat.ends})

    def replies(
        self,
        conversations: Sequence[Messages],
        settings: Generation,
        *,
        stop: str | Sequence[str] = (),
        scores: bool = False,
        tools: Sequence[Tools] | None = None,
    ) -> list[list[Output]]:
        """Return `settings.num_samples` replies to each conversation, see `outputs`; `tools` are each conversation's."""
        described = tools or [None] * len(conversations)
        prompts = [self.tokenizer.chat.prompt(*one) for one in zip(conversations, described, strict=True)]
        return self.outputs_of(prompts, settings, stop=stop, scores=scores)

    def stream_reply(
        self,
        messages: Messages,
        settings: Generation,
        emit: Callable[[str], None],
        *,
        stop: str | Sequence[str] = (),
        tools: Tools = None,
    ) -> Output:
        """Pass one reply to `emit` piece by piece, as it is generated."""
        return self.stream_of(self.tokenizer.chat.prompt(messages, tools), settings, emit, stop=stop)


def assistant(run: LoadedModel, draft: LoadedModel | None = None) -> Assistant:
    """Return a run's model as an assistant. Raises ValueError if it is not a language model, or has no chat template."""
    text = with_draft(run, draft)
    if run.model.is_encoder_decoder or getattr(run.model, "decoder", None) is None:
        raise ValueError(
            f"{run.name} is {kind_of(run)}, and only a language model replies to conversations; {advice(run)}"
        )
    try:
        text.tokenizer.chat  # noqa: B018  (built here, so an error names the run)
    except ValueError as error:
        raise ValueError(f"{run.name}: {error}") from None
    return Assistant(text.model, text.tokenizer, "answer", text.ids, text.draft)


def chat(
    run: LoadedModel,
    messages: Messages,
    emit: Callable[[str], None] | None = None,
    *,
    stop: str | Sequence[str] = (),
    draft: LoadedModel | None = None,
    tools: Tools = None,
    **options: Unpack[GenerationOptions],
) -> str:
    """Return the assistant's reply to a conversation, `[{"role": "user", "content": "Hello!"}]`.

    `emit`, if given, receives it piece by piece, as it is generated. `tools` describe (as JSON schemas) the functions
    that the model may call, if the chat template has a place for them. Options are the fields of `Generation`. `draft`
    is a smaller run that proposes tokens. Raises ValueError if the tokenizer has no chat template, or the template
    refuses the conversation.
    """
    model, settings = assistant(run, draft), run.generation.replace(options)
    if emit is None:
        return model.replies([messages], settings, stop=stop, tools=[tools])[0][0].text
    pieces: list[str] = []

    def receive(piece: str) -> None:
        pieces.append(piece)
        emit(piece)

    model.stream_reply(messages, settings, receive, stop=stop, tools=tools)
    return "".join(pieces)
