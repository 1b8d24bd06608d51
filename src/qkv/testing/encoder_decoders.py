"""Checks of encoder–decoders, in fp64: padding of both sides, later target tokens, decoding step by step, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..core.layout import Layout
from ..generation import generate
from ..nn.models.base import ModelSpec
from ..nn.models.build import AnyModel
from .models import LENGTHS, NEW, ModelChecks, check_likeliest, same
from .report import NotChecked

SOURCES = (4, 7, 6)  # lengths of the sources; LENGTHS has the targets'


class EncoderDecoderChecks(ModelChecks):
    """The checks of one encoder–decoder of tokens."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        generator = torch.Generator().manual_seed(2)
        shape = (len(SOURCES), max(SOURCES))
        self.source_ids = torch.randint(0, spec.source_vocabulary or 1, shape, generator=generator)
        self.causal = True

    def by_name(self) -> dict[str, Callable[[], None]]:
        checks = super().by_name()
        return {name: run for name, run in checks.items() if name != "packed = separate"}

    def sources(self) -> list[Tensor]:
        return [self.source_ids[i, :n] for i, n in enumerate(SOURCES)]

    def outputs(self, model: Callable[..., Any], ids: Tensor | None = None) -> Tensor:
        """Outputs for the full rows of sources and targets."""
        ids = self.ids if ids is None else ids
        outputs = model(self.source_ids, ids)
        if not isinstance(outputs, Tensor) or outputs.shape[:2] != ids.shape:
            raise NotChecked("the model's outputs are not one vector for each target token")
        return outputs

    def prompts(self) -> list[list[int]]:
        return [row.tolist() for row in self.sources()]

    def written(self, model: AnyModel, prompts: list[list[int]]) -> list[list[int]]:
        return generate(model, prompts, max_new_tokens=NEW, bos_id=0).best

    def check_written(self, prompts: list[list[int]], written: list[list[int]]) -> None:
        model = self.model()
        for prompt, tokens in zip(prompts, written, strict=True):
            logits = model(torch.tensor([prompt]), torch.tensor([[0, *tokens]]))[0, : len(tokens)]
            check_likeliest(logits, tokens)

    @torch.no_grad()
    def batched(self) -> None:
        """Pairs in a batch, padded on the right, give what each pair gives alone."""
        model, pairs = self.model(), list(zip(self.sources(), self.rows(), strict=True))
        self.outputs(model)
        layouts = [Layout.from_lengths(lengths, max(lengths) + 1) for lengths in (SOURCES, LENGTHS)]
        source, target = (torch.zeros(layout.shape, dtype=torch.long) for layout in layouts)
        for i, (own, written) in enumerate(pairs):
            source[i, : len(own)], target[i, : len(written)] = own, written
        outputs = model(source, target, layout=layouts[0], target_layout=layouts[1])
        for i, (own, written) in enumerate(pairs):
            alone = model(own[None], written[None])[0]
            same(outputs[i, : len(written)], alone, f"pair {i} in a padded batch differs from the pair alone")

    @torch.no_grad()
    def future(self) -> None:
        """Outputs do not depend on later target tokens."""
        model, changed = self.model(), self.ids.clone()
        changed[:, 5:] = (changed[:, 5:] + 1) % self.spec.vocab_size
        changed_outputs, expected = self.outputs(model, changed)[:, :5], self.outputs(model)[:, :5]
        same(changed_outputs, expected, "outputs depend on later target tokens")

    @torch.no_grad()
    def cached(self) -> None:
        """Decoding step by step from the sources gives what one pass over all target tokens gives."""
        model = self.model()
        if not hasattr(model, "start") or not hasattr(model, "step"):
            raise NotChecked("the model has no `start` and `step`")
        cache = model.start(source=self.source_ids)
        steps = [model.step(self.ids[:, :3], cache)]
        steps += [model.step(self.ids[:, t : t + 1], cache) for t in range(3, self.ids.shape[1])]
        message = "decoding step by step differs from one pass over all target tokens"
        same(torch.stack(steps, 1), self.outputs(model)[:, 2:], message)
