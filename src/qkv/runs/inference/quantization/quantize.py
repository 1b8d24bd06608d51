"""`Run.quantize`: a run whose weights are quantized, with its loss of precision by layer."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ....core.batch import Batch
from ....nn.models.quantized import select
from ....nn.models.quantized.dequantize import dequantize
from ....nn.models.quantized.quantize import Quantized, Tell, quantize
from ....nn.quantization.scheme import Activations, Method, Scheme, Weights, check_method, scheme_of
from ..loaded import LoadedModel
from .calibration import Data, amount, calibration

EXAMPLES = 128  # of calibration data

R = TypeVar("R", bound=LoadedModel)


def quantized(
    run: R,
    weights: Weights | Scheme,
    *,
    group_size: int | None = None,
    symmetric: bool = True,
    activations: Activations = "none",
    method: Method | None = None,
    calibrate: Data | None = None,
    examples: int = EXAMPLES,
    embeddings: bool | Scheme = False,
    head: bool | Scheme = False,
    keep: str | Sequence[str] = (),
    tell: Tell | None = None,
) -> tuple[R, Quantized]:
    """Return a run with quantized weights, and what that did; the given run is unchanged. See `Run.quantize`."""
    fields = {"group_size": group_size, "symmetric": symmetric, "activations": activations}
    scheme = scheme_of(weights, **fields)
    method = check_method(usual_method(scheme, calibrate) if method is None else method)
    if method == "rtn" and calibrate is None:
        batches: list[Batch] = []
        forward = None
    else:
        chosen = select.matrices(run.model, embeddings, head, keep)
        select.group_sizes(chosen, select.schemes_of(chosen, scheme, embeddings, head))  # before data are read
        batches, forward = calibration(run, "train" if calibrate is None else calibrate, examples)
        _warn_of_few(run, batches)
    model = copy.deepcopy(run.model)
    done = quantize(
        model,  # type: ignore[arg-type]  # checked there
        scheme,
        method,
        embeddings=embeddings,
        head=head,
        keep=keep,
        batches=batches,
        forward=forward,
        tell=tell,
    )
    rows, tokens = amount(batches)
    done = replace(done, rows=rows, tokens=tokens)
    return replace(run, model=model), done


def _warn_of_few(run: LoadedModel, batches: Sequence[Batch]) -> None:
    """Warn if there are fewer tokens than a layer has inputs: too few to judge its outputs."""
    (rows, tokens), widest = amount(batches), max(one.shape[-1] for one in run.model.parameters() if one.ndim == 2)
    if 0 < tokens < widest:
        warnings.warn(
            f"the calibration data are {tokens:,} tokens in {rows:,} rows, fewer than the widest layer has inputs "
            f"({widest:,}), and the result may be no better than rounding; give more text",
            stacklevel=3,
        )


def quantized_with_warning(run: R, weights: Weights | Scheme, **options: Any) -> R:
    """Quantize a run, and warn if gptq or awq rounded some experts to nearest."""
    made, done = quantized(run, weights, **options)
    if done.rounded:
        warnings.warn(rounded_message(done.rounded), stacklevel=3)
    return made


def rounded_message(rounded: Mapping[str, Mapping[int, int]]) -> str:
    """Return the warning about experts that were routed too few tokens, from `Quantized.rounded`."""
    count = sum(map(len, rounded.values()))
    tokens, expert, path = min((n, expert, path) for path, counts in rounded.items() for expert, n in counts.items())
    which = "1 matrix of an expert was" if count == 1 else f"{count} matrices of experts were"
    return (
        f"{which} rounded to nearest, since few tokens of the calibration data were routed to them (the fewest were "
        f"{tokens}, to expert {expert} of {path}): give more examples"
    )


def dequantized(run: R) -> R:
    """Return a copy of the run with dequantized weights."""
    model = copy.deepcopy(run.model)
    dequantize(model)
    return replace(run, model=model)


def usual_method(scheme: Scheme, calibrate: Data | None) -> Method:
    """GPTQ for 4 bits with calibration data, else rounding."""
    return "gptq" if scheme.format.bits == 4 and calibrate is not None else "rtn"
