"""`check`: the checks that apply to a part, by its role."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

from ..core.batch import Batch
from ..core.metrics.base import Metric
from ..core.spec import Spec
from ..data.source import Example, Source
from ..data.task import Task
from ..data.tokenizers.protocol import TextDecoder
from ..data.tokenizers.training.spec import TokenizerSpec
from ..io.families import preset
from ..nn.attention.mixer import Mixer
from ..nn.attention.weighting import Weighting
from ..nn.layers.feedforward import FeedForwardLayer
from ..nn.layers.norm import Norm
from ..nn.models.base import ModelSpec
from ..nn.models.heads.base import Head
from ..nn.models.placement import Placement
from ..nn.models.transformer import Transformer
from ..nn.patterns.algebra import Pattern
from ..nn.positions.absolute import NoPosition
from ..nn.positions.base import Position
from ..training.objective import Objective
from ..training.optimizers import Optimizer
from ..training.optimizers.schedules import Schedule
from . import encoder_decoders, metrics, models, objectives, patterns, sources, tasks, tokenizers, training
from .report import Check, Report, outcome_of

PLACES: dict[type[Spec], tuple[str, ...]] = {
    Pattern: ("blocks.*.attention.pattern",),
    Position: ("position",),
    Mixer: ("blocks.*.attention",),
    Weighting: ("blocks.*.attention.weighting",),
    FeedForwardLayer: ("blocks.*.feedforward",),
    Norm: ("blocks.*.norm", "norm"),
    Placement: ("blocks.*.placement",),
}
"""Where parts of each role go in a stack."""

CHECKED = (
    "patterns, positions, mixers, weightings, feed-forwards, norms, placements, heads, models, optimizers, schedules, "
    "objectives, metrics, sources, tasks, tokenizers"
)


def check(
    part: Spec | Metric,
    *,
    model: nn.Module | None = None,
    batches: Sequence[Batch] = (),
    examples: Sequence[Example] = (),
    tokenizer: TextDecoder | None = None,
) -> Report:
    """Check that a part keeps the promises that qkv relies on, and return a report.

    Every part has to survive its JSON form. A model, or a tiny model with the part in it, is checked in fp64. Outputs
    do not depend on padding, packing or later tokens, and decoding with a cache gives the same as one pass. Backends
    agree, gradients are finite, and `cost` counts the parameters. It also runs in fp32 without gradients, where kernels
    compute whole stacks, generates, and runs in bf16 and compiled. A pattern's `block` is checked against `allowed`; an
    optimizer has to follow its groups' learning rates and resume from its state; a schedule's factors are finite and
    not negative. A source gives the same entries for the same seed, in any order and in any process, and no example in
    two splits. A tokenizer gives the same ids alone and in batches, saved and loaded, and reads no control token from
    text.

        report = qkv.testing.check(EveryNth(step=3))
        print(report)  # check, outcome and reason
        report.raise_for_failures()

    An objective is checked with `model` and `batches`, or with a tiny language model: sums and counts of parts of a batch
    add up to the whole's, and labels of −100 change nothing.

    A metric is no spec; it is checked with `model` and `batches`. It gives the same for the parts of a batch as for the
    whole and in any order, NaN if an output is NaN, and no number if nothing was measured.

    A task is checked on `examples`, with the `tokenizer` if it reads text: an example's items are the same again, alone
    and beside others, and a batch has what its examples have alone, padded.

    Parts of other roles are checked only for their JSON form, which the report says. Raises ValueError for what is no part.
    """
    if isinstance(part, Metric):
        of_metric = metrics.metric_checks(part, model, batches)
        return Report(type(part).__name__, tuple(outcome_of(name, run) for name, run in of_metric.items()))
    if not isinstance(part, Spec):
        raise ValueError(
            f"check takes a part, a value of a subclass of qkv.Spec, or a metric, not {type(part).__name__}"
        )
    checks = [outcome_of("JSON form", lambda: _check_json(part))]
    if isinstance(part, Task):
        of_task = tasks.task_checks(part, examples, tokenizer)
        return Report(repr(part), (*checks, *(outcome_of(name, run) for name, run in of_task.items())))
    checks += [outcome_of(name, run) for name, run in _checks_of(part, model, batches).items()]
    if len(checks) == 1:
        reason = f"only the JSON form of this role is checked; behavior is checked for {CHECKED}"
        checks.append(Check("behavior", "not checked", reason))
    return Report(repr(part), tuple(checks))


def _check_json(part: Spec) -> None:
    again = type(part).from_json(part.to_json())
    assert again == part, f"the JSON form is read back as {again!r}"


def _checks_of(part: Spec, model: nn.Module | None, batches: Sequence[Batch]) -> dict[str, Callable[[], None]]:
    checks: dict[str, Callable[[], None]] = {}
    if isinstance(part, Optimizer):
        return training.optimizer_checks(part)
    if isinstance(part, Source):
        return sources.source_checks(part)
    if isinstance(part, Objective):
        return objectives.objective_checks(part, model, batches)
    if isinstance(part, TokenizerSpec):
        return tokenizers.tokenizer_checks(part)
    if isinstance(part, Schedule):
        return {"factors": lambda: training.check_factors(part)}
    if isinstance(part, Pattern):
        checks["block agrees with allowed"] = lambda: patterns.check_blocks(part)
        checks["positions, not indices"] = lambda: patterns.check_indices(part)
    if not isinstance(part, (ModelSpec, Head, *PLACES)):
        return checks
    try:
        spec = model_with(part)
        of_model = encoder_decoders.EncoderDecoderChecks if spec.is_encoder_decoder else models.ModelChecks
        return {**checks, **of_model(spec).by_name()}
    except (ValueError, TypeError) as error:
        message = f"no model can be made with it: {error}"
    return {**checks, "model": lambda: _fail(message)}


def _fail(message: str) -> None:
    raise AssertionError(message)


def model_with(part: Spec) -> ModelSpec:
    """A tiny model with the part in it: a decoder, or an encoder for a pattern that lets tokens see later ones."""
    if isinstance(part, ModelSpec):
        return part
    tiny = preset("llama", vocab_size=17, d_model=32, n_layers=2, n_heads=4, d_ff=64, max_positions=64)
    if isinstance(part, Head):
        return tiny.replace({"head": part})
    places = next(places for role, places in PLACES.items() if isinstance(part, role))
    if isinstance(part, Mixer) and part.heads(tiny.d_model) is None:  # no heads to rotate
        tiny = tiny.replace({"decoder.position": NoPosition(), "decoder.blocks.*.attention": part})
    stack = tiny.decoder
    assert stack is not None
    pattern = part if isinstance(part, Pattern) else getattr(part, "pattern", None)
    if isinstance(pattern, Pattern) and pattern.looks_ahead(models.LENGTHS[1]):
        stack = stack.replace(dict.fromkeys(places, part))
        return Transformer(vocab_size=17, d_model=32, max_positions=64, encoder=stack, head=tiny.head)
    return tiny.replace({f"decoder.{place}": part for place in places})
