"""Models of the Hub's own classes and ours with the same weights, and batches for both."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hub_cases import CASES, Case, transformers
from hub_sizes import EOS, PAD, VOCABULARY
from torch import Tensor

from qkv.core.layout import Layout


@dataclass
class Pair:
    """One model twice: theirs, saved to `folder`, and ours, loaded from there."""

    case: Case
    theirs: Any
    run: Any
    place: tempfile.TemporaryDirectory[str]  # gone with the process

    @property
    def folder(self) -> Path:
        return Path(self.place.name)

    @property
    def ours(self) -> Any:
        return self.run.model


@functools.cache
def pair(name: str) -> Pair:
    """Both models of a case, made once for all tests."""
    return made(CASES[name] if name in CASES else RANDOM[name], name)


RANDOM: dict[str, Case] = {}
"""Cases that another module adds."""


def parameters(cases: Mapping[str, Case], chosen: Callable[[Case], object] = lambda case: True) -> list[Any]:
    """The names of the cases that are chosen, as parameters of tests."""
    return [
        pytest.param(name, marks=[pytest.mark.slow] if case.slow else [])
        for name, case in cases.items()
        if chosen(case)
    ]


@functools.cache
def saved(name: str) -> Path:
    """What ours is saved as for the Hub, once for all tests, which don't change it."""
    folder = pair(name).folder / "saved"
    return pair(name).run.save(folder, to="hub")


def made(case: Case, name: str) -> Pair:
    """Both models of a case, with numbers by its name."""
    from qkv.runs.inference.run import load

    torch.manual_seed(sum(map(ord, name)))
    cls = getattr(transformers, case.cls)
    tokens = {"bos_token_id": 1, "eos_token_id": EOS, "pad_token_id": PAD}
    theirs = cls(cls.config_class(**{**tokens, **case.config}, attn_implementation=case.attention)).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():  # far from their starting values, so no two of them are alike
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * (0.2 if parameter.ndim > 1 else 0.3))
        if hasattr(theirs, "final_logits_bias"):
            theirs.final_logits_bias.normal_()
    place = tempfile.TemporaryDirectory(prefix="qkv-parity-")
    theirs.save_pretrained(place.name)
    return Pair(case, theirs, load(place.name, device="cpu"), place)


@dataclass
class Inputs:
    """A padded batch: ids, the mask of real tokens, their positions, segments and roles; sources for an encoder–decoder."""

    ids: Tensor
    mask: Tensor
    positions: Tensor
    types: Tensor | None
    chosen: Tensor | None = None
    source: Tensor | None = None
    source_mask: Tensor | None = None


def inputs(case: Case, side: str = "right", lengths: tuple[int, ...] | None = None) -> Inputs:
    generator = torch.Generator().manual_seed(3)
    lengths = lengths or case.lengths
    mask = _mask(lengths, side)
    ids = torch.randint(6, VOCABULARY, mask.shape, generator=generator).masked_fill(mask == 0, PAD)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    types = torch.randint(0, 2, mask.shape, generator=generator) if case.types else None
    made = Inputs(ids, mask, positions, types)
    if case.chosen:
        made.chosen = (torch.rand(mask.shape, generator=generator) < 0.15).long() * mask
        made.chosen[1] = 0  # a row without any
    if case.does == "translate":
        made.source_mask = _mask(tuple(reversed(lengths)), "right")
        made.source = torch.randint(6, VOCABULARY, mask.shape, generator=generator)
        made.source = made.source.masked_fill(made.source_mask == 0, PAD)
    return made


def _mask(lengths: tuple[int, ...], side: str) -> Tensor:
    mask = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    return (mask.flip(1) if side == "left" else mask).long()


def theirs(pair: Pair, given: Inputs, model: Any = None) -> Tensor:
    """Their head's output, or their last hidden states."""
    case = pair.case
    options: dict[str, Any] = {"attention_mask": given.mask, "input_ids": given.ids}
    if case.does == "translate":
        options = {"attention_mask": given.source_mask, "input_ids": given.source, "decoder_input_ids": given.ids}
        options |= {"decoder_attention_mask": given.mask}
    if case.types:
        options["token_type_ids"] = given.types
    if case.chosen:
        options["global_attention_mask"] = given.chosen
    if case.does == "continue" and case.places == "given":
        options["position_ids"] = given.positions
    out = (model or pair.theirs)(**options)
    found = getattr(out, case.outputs) if case.outputs else out.last_hidden_state
    return found.unsqueeze(-1) if case.labels == 1 else found


def ours(pair: Pair, given: Inputs, model: Any = None, **options: Any) -> Any:
    """Our output for the same batch."""
    model = model or pair.ours
    if pair.case.does == "translate":
        return model(given.source, given.ids, attention_mask=given.source_mask, target_mask=given.mask, **options)
    if given.chosen is not None:
        layout = Layout.from_mask(given.mask).with_global(given.chosen)
        return model(given.ids, layout=layout, token_types=given.types, **options)
    return model(given.ids, attention_mask=given.mask, token_types=given.types, **options)
