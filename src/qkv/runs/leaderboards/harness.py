"""A run as a model of lm-evaluation-harness, whose tasks leaderboards report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...core.optional_libraries import is_installed, need
from ...core.spec import brief, counted, nearest
from ...generation import Generation, row_seed
from ...generation.log_likelihood import Scores, score
from ...generation.stopping import cut_at
from ..inference.run import Run, load
from ..inference.uses import check
from .shared_prompts import score_continuations

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

if is_installed("lm_eval"):
    from lm_eval.api.model import TemplateLM
else:
    TemplateLM = object

UNBOUNDED = 2048  # tokens, of models whose context has no end; as by the harness
MAX_GEN_TOKS = 256  # tokens of an output, for tasks that give no number; as by the harness
CHUNK = 512  # requests between two moves of the progress bar

LENGTHS = (
    "max_gen_toks",
    "max_new_tokens",
    "max_tokens",
    "max_completion_tokens",
)  # names of one option, the first wins
CHANGED = ("until", "do_sample")  # what a task may set besides a length and generation options
SAMPLING = ("temperature", "top_k", "top_p", "min_p")
OPTIONS = (*SAMPLING, "num_beams", "repetition_penalty", "no_repeat_ngram_size")

Request = tuple[tuple[str, str], list[int], list[int]]  # texts, ids of the context and ids of the continuation


class HarnessModel(TemplateLM):
    """The harness's model interface over a run.

    pretrained: a run that generates texts, or the name or directory of one.
    batch_size: texts that are generated together; likelihoods are computed in batches of a fixed number of tokens.
    max_length: the most tokens of a context and its continuation; the model's own number by default. Contexts that are
        longer lose their beginning, and `cut` counts them.

    Outputs of encoder–decoders have at most the task's `max_gen_toks`; the harness's `hf` backend adds the prompt's length.

    Log-likelihoods of several continuations of a context read the context once (`shared_prompts`). Raises
    ValueError for a run that generates no texts.
    """

    def __init__(
        self,
        pretrained: Run | str | Path,
        *,
        batch_size: int = 32,
        max_length: int | None = None,
        device: str = "auto",
        show_progress: bool = True,
    ) -> None:
        need("qkv.lm_eval", "lm_eval")
        super().__init__()
        self.run = pretrained if isinstance(pretrained, Run) else load(str(pretrained), device)
        check(self.run, "score")
        if batch_size < 1:
            raise ValueError(f"batch_size is a number of texts of at least 1, not {batch_size}")
        self.batch_size, self.show_progress, self.cut = batch_size, show_progress, 0
        self.tokenizer = self.run.words
        self.backend = "seq2seq" if self.run.model.is_encoder_decoder else "causal"
        most = self.run.model.max_positions
        if max_length is not None and most is not None and max_length > most:
            raise ValueError(f"max_length={max_length} is more than the model's context of {most}; give at most that")
        self.max_length = max_length or most or UNBOUNDED
        self.templated = False

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text."""
        ends = self.run.words.eos_id, self.run.words.bos_id, self.run.words.pad_id
        found = next((token for token in ends if token is not None), None)
        if found is None:
            raise ValueError(
                "this run's tokenizer has no token that ends a text, from which tasks begin empty contexts"
            )
        return found

    @property
    def prefix_token_id(self) -> int:
        """The token from which texts without a context begin."""
        begin = self.run.words.bos_id
        return self.eot_token_id if begin is None else begin

    @property
    def tokenizer_name(self) -> str:
        return self.run.name

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **options: Any) -> list[int]:
        """The ids that the run reads for a text; without special tokens around it if `add_special_tokens` is False."""
        words = self.run.words
        if self.templated:  # control tokens come from the chat template
            ids = words.encode(string, control=True)
            begins = add_special_tokens is not False and self.run.encode("")[:1] == [words.bos_id]
            return ids if words.bos_id is None or not begins or ids[:1] == [words.bos_id] else [words.bos_id, *ids]
        return words.encode(string) if add_special_tokens is False else self.run.encode(string)

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """The prompt for a conversation, which ends where the assistant's reply begins, or within its last reply."""
        self.templated = True
        chat = self.run.words.chat
        if add_generation_prompt:
            return chat.text(chat_history, prompt=True)
        text, last = chat.text(chat_history), chat_history[-1]["content"].strip()
        return text[: text.rindex(last) + len(last)]

    # -- what tasks ask ---------------------------------------------------------------------------------------------

    def _loglikelihood_tokens(self, requests: list[Request], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        pairs = [self._within(context, continuation) for _, context, continuation in requests]
        order = sorted(range(len(pairs)), key=lambda i: (-len(pairs[i][0]), pairs[i][0]))  # a context's pairs together
        results: list[tuple[float, bool]] = [(0.0, True)] * len(pairs)
        for group in self._chunks(order, "log-likelihoods", disable_tqdm):
            scores = self._score([pairs[i] for i in group])
            for i, values, likeliest in zip(group, scores.log_probs, scores.likeliest, strict=True):
                results[i] = sum(values), all(likeliest)
                self.cache_hook.add_partial("loglikelihood", requests[i][0], results[i])
        return results

    def _within(self, context: list[int], continuation: list[int]) -> tuple[list[int], list[int]]:
        """A pair that fits into the model's context."""
        if self.backend == "seq2seq":
            kept = context[-self.max_length :]
        else:
            room = self.max_length + 1 - len(continuation)
            if room < 1:
                raise ValueError(
                    f"a continuation has {counted(len(continuation), 'token')}, and the model's context is {self.max_length}"
                )
            kept = context[-room:]
        self.cut += len(kept) < len(context)
        return kept, continuation

    def _score(self, pairs: Sequence[tuple[list[int], list[int]]]) -> Scores:
        prompts, targets = [prompt for prompt, _ in pairs], [target for _, target in pairs]
        if self.backend == "seq2seq":
            return score(self.run.model, prompts, targets, bos_id=self.run.start)
        return score_continuations(self.run.model, prompts, targets)

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """The log-likelihood of each whole text, in windows as wide as the context."""
        from lm_eval import utils

        windows: list[Request] = []
        of: list[int] = []
        for i, request in enumerate(requests):
            (text,) = request.args
            rolling = utils.get_rolling_token_windows(
                self.tok_encode(text), self.prefix_token_id, max_seq_len=self.max_length, context_len=1
            )
            parts = [(("", ""), *utils.make_disjoint_window(window)) for window in rolling]
            windows += parts
            of += [i] * len(parts)
        totals = [0.0] * len(requests)
        for i, (value, _) in zip(of, self._loglikelihood_tokens(windows, disable_tqdm), strict=True):
            totals[i] += value
        for request, total in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Return the output for each context. It ends before the first of the task's stop strings.

        As in the harness, the output is the text of the new tokens only, without the space after the context and without
        unknown tokens.
        """
        results = [""] * len(requests)
        size = 1 if self.run.roles.depend_on_length else self.batch_size
        for options, numbers in _by_options(requests).items():
            settings, stop = self._settings(json.loads(options))
            prompts = {i: self._prompt(requests[i].args[0], settings.max_new_tokens) for i in numbers}
            order = sorted(numbers, key=lambda i: -len(prompts[i]))
            for group in self._chunks(order, "outputs", disable_tqdm, size):
                seed = settings.seed if settings.seed is not None else int(torch.randint(2**62, ()))
                seeds = [row_seed(seed, i) for i in group] if settings.samples else None
                generated = self.run.generated([prompts[i] for i in group], settings, stop, seeds=seeds)
                for i, (ids, *_) in zip(group, generated.sequences, strict=True):
                    results[i] = cut_at(
                        self.run.words.decode([one for one in ids if one != self.run.words.unk_id]), stop
                    )
                    self.cache_hook.add_partial("generate_until", requests[i].args, results[i])
        return results

    def _prompt(self, context: str, new: int) -> list[int]:
        ids = self.tok_encode(context)
        room = self.max_length if self.backend == "seq2seq" else self.max_length - new
        if room < 1:
            raise ValueError(
                f"the task asks for outputs of {new} tokens, which leave no room in the model's context of "
                f"{self.max_length}; choose another task, or a model with a longer context"
            )
        self.cut += len(ids) > room
        return ids[-room:]

    def _settings(self, given: Mapping[str, Any]) -> tuple[Generation, list[str]]:
        """The settings of decoding, and the stop strings. Greedy unless a task samples."""
        left = dict(given)
        until = left.pop("until", None) or []
        stop = [until] if isinstance(until, str) else [text for text in until if text]
        new = next((left[name] for name in LENGTHS if left.get(name) is not None), MAX_GEN_TOKS)
        for name in LENGTHS:
            left.pop(name, None)
        temperature = left.pop("temperature", None)
        samples = left.pop("do_sample", None)
        samples = bool(temperature) if samples is None else bool(samples)
        options: dict[str, Any] = {"max_new_tokens": int(new), "do_sample": samples}
        if samples and temperature:
            options["temperature"] = float(temperature)
        check_options(left)
        return self.run.settings(**options, **{name: left[name] for name in left}), stop

    def _chunks(self, order: Sequence[int], what: str, quiet: bool, size: int = CHUNK) -> Iterator[Sequence[int]]:
        """Parts of the requests, with a progress bar."""
        from tqdm import tqdm

        with tqdm(total=len(order), desc=what, disable=quiet or not self.show_progress) as bar:
            for start in range(0, len(order), size):
                yield order[start : start + size]
                bar.update(len(order[start : start + size]))


def check_options(given: Mapping[str, Any], by_user: bool = False) -> None:
    """Raise ValueError for a generation option that does not exist.

    by_user: the options override a task's. Most tasks turn sampling off, so an option of sampling needs `do_sample` too.
    """
    allowed = (*LENGTHS[:1], *CHANGED, *OPTIONS)
    unknown = next((name for name in given if name not in (*LENGTHS, *allowed)), None)
    if unknown is not None:
        raise ValueError(f"there is no generation option {brief(unknown)}; {nearest(unknown, allowed)}")
    sampling = next((name for name in SAMPLING if given.get(name)), None)
    if by_user and sampling is not None and "do_sample" not in given:
        raise ValueError(f"{sampling} is for sampling, which most tasks turn off; give do_sample=true beside it")


def _by_options(requests: Sequence[Instance]) -> dict[str, list[int]]:
    """The numbers of the requests with each options of generation."""
    groups: dict[str, list[int]] = {}
    for i, request in enumerate(requests):
        groups.setdefault(json.dumps(request.args[1], sort_keys=True), []).append(i)
    return groups
