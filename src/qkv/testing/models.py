"""Checks of a tiny model with the part in it: padding, packing, caches, backends, gradients, parameters in fp64; others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..core.layout import Layout
from ..generation import generate
from ..io.directories.build import build
from ..nn.kernels.backends import BACKENDS
from ..nn.models.base import ModelSpec
from ..nn.models.build import AnyModel
from ..nn.models.transformer import Transformer
from .report import NotChecked

TOLERANCE, SINGLE, HALF = 1e-8, 1e-3, 32 * 2.0**-8  # relative L2 distance, in fp64, fp32 and bf16, which rounds by 2⁻⁸
NEW = 4  # tokens to generate
LENGTHS = (5, 11, 3)  # the full rows have more tokens than the kernels of whole stacks need
LARGEST = 20_000_000  # parameters of a model that is run


class ModelChecks:
    """The checks of one model spec. A model is built anew for each, with parameters moved away from their initial values."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self.causal = not _sees_later_tokens(spec)
        generator = torch.Generator().manual_seed(1)
        self.ids = torch.randint(0, spec.vocab_size or 1, (len(LENGTHS), max(LENGTHS)), generator=generator)

    def by_name(self) -> dict[str, Callable[[], None]]:
        checks = {
            "batched = alone": self.batched,
            "packed = separate": self.packed,
            "no later tokens": self.future,
            "cached = one pass": self.cached,
            "backends = reference": self.backends,
            "gradients": self.gradients,
            "fp32 = fp64": self.single,
            "generates": self.generates,
            "runs in bf16": self.half,
            "compiled = eager": self.compiled,
        }
        return {"parameter count": self.parameter_count, **{name: self._if_run(run) for name, run in checks.items()}}

    def _if_run(self, run: Callable[[], None]) -> Callable[[], None]:
        """A check that runs the model, for models that the checks can run."""

        def check() -> None:
            if not self.spec.vocab_size:
                raise NotChecked("only models of token ids are run")
            if self.spec.n_parameters > LARGEST:
                raise NotChecked(f"the model has more than {LARGEST:,} parameters; give smaller sizes")
            run()

        return check

    @torch.no_grad()
    def model(self, spec: ModelSpec | None = None, dtype: torch.dtype = torch.float64) -> AnyModel:
        model = build(spec or self.spec, dtype=torch.float64).eval()
        generator = torch.Generator().manual_seed(7)
        for parameter in model.parameters():
            parameter.add_(0.25 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        return model if dtype == torch.float64 else model.to(dtype)

    def outputs(self, model: Callable[..., Any]) -> Tensor:
        """Outputs for the full rows."""
        return _logits(model, self.ids)

    def rows(self) -> list[Tensor]:
        return [self.ids[i, :n] for i, n in enumerate(LENGTHS)]

    def parameter_count(self) -> None:
        """The formula of `cost` is the number of parameters."""
        model = build(self.spec, device="meta", initialized=False)
        counted = sum(parameter.numel() for parameter in model.parameters())
        formula = self.spec.n_parameters
        assert formula == counted, f"`cost` counts {formula:,} parameters in the model, which has {counted:,}"

    @torch.no_grad()
    def batched(self) -> None:
        """Rows in a batch, padded on either side, give what each row gives alone."""
        model = self.model()
        alone = [_logits(model, row[None])[0] for row in self.rows()]
        for side in ("right", "left"):
            layout = Layout.from_lengths(LENGTHS, max(LENGTHS) + 1, side)
            padded = torch.zeros(layout.shape, dtype=torch.long)
            for i, row in enumerate(self.rows()):
                padded[i, layout.valid[i]] = row
            logits = _logits(model, padded, layout)
            for i, expected in enumerate(alone):
                same(logits[i, layout.valid[i]], expected, f"row {i}, padded on the {side}, differs from the row alone")

    @torch.no_grad()
    def packed(self) -> None:
        """Documents packed into one row give what each gives alone."""
        model, start = self.model(), 0
        logits = _logits(model, torch.cat(self.rows())[None], Layout.packed([LENGTHS]))[0]
        for i, row in enumerate(self.rows()):
            together = logits[start : start + len(row)]
            same(together, _logits(model, row[None])[0], f"packed document {i} differs from the document alone")
            start += len(row)

    @torch.no_grad()
    def future(self) -> None:
        """Outputs do not depend on later tokens."""
        self._needs_causal()
        model, changed = self.model(), self.ids.clone()
        changed[:, 5:] = (changed[:, 5:] + 1) % self.spec.vocab_size
        message = "outputs depend on later tokens"
        same(_logits(model, changed)[:, :5], _logits(model, self.ids)[:, :5], message)

    @torch.no_grad()
    def cached(self) -> None:
        """Decoding step by step with a cache gives what one pass over all tokens gives."""
        self._needs_causal()
        model = self.model()
        if not hasattr(model, "start") or not hasattr(model, "step"):
            raise NotChecked("the model has no `start` and `step`")
        cache = model.start(len(LENGTHS))
        steps = [model.step(self.ids[:, :3], cache)]
        steps += [model.step(self.ids[:, t : t + 1], cache) for t in range(3, self.ids.shape[1])]
        expected = _logits(model, self.ids)[:, 2:]
        same(torch.stack(steps, 1), expected, "decoding step by step differs from one pass over all tokens")

    @torch.no_grad()
    def backends(self) -> None:
        """Attention backends that support the model agree with `reference`."""
        path = "*.blocks.*.attention.backend"
        try:
            specs = {
                name: self.spec.replace({path: name}) for name in ("reference", "sdpa", "tiled") if name in BACKENDS
            }
        except ValueError:
            raise NotChecked("the model has no attention that chooses a backend") from None
        expected, compared = self.outputs(self.model(specs.pop("reference"))), 0
        for name, spec in specs.items():
            try:
                logits = self.outputs(self.model(spec))
            except ValueError:
                continue  # the backend does not support it
            same(logits, expected, f"the backend {name} differs from reference")
            compared += 1
        if not compared:
            raise NotChecked("no other backend supports it")

    def gradients(self) -> None:
        """Gradients are finite, and each parameter has one."""
        model = self.model()
        torch.autograd.backward(self.outputs(model).square().sum())
        parameters: list[tuple[str, nn.Parameter]] = list(model.named_parameters())
        missing = [name for name, parameter in parameters if parameter.requires_grad and parameter.grad is None]
        assert not missing, f"no gradient reaches {', '.join(missing)}"
        odd = [name for name, p in parameters if p.grad is not None and not p.grad.isfinite().all()]
        assert not odd, f"gradients of {', '.join(odd)} are not finite"

    @torch.no_grad()
    def single(self) -> None:
        """In fp32 without gradients, in which kernels in C++ compute whole stacks, outputs equal fp64's."""
        expected = self.outputs(self.model())
        found = self.outputs(self.model(dtype=torch.float32))
        same(found.double(), expected, "outputs in fp32 without gradients differ from those in fp64", SINGLE)

    @torch.no_grad()
    def generates(self) -> None:
        """Greedy generation in fp32 gives the likeliest tokens of passes over all tokens in fp64."""
        self._needs_causal()
        model = self.model(dtype=torch.float32)
        if not hasattr(model, "start") or not hasattr(model, "step"):
            raise NotChecked("the model has no `start` and `step`")
        if not getattr(model.spec, "predicts_tokens", True):
            raise NotChecked("the model's head predicts no tokens")
        prompts = self.prompts()
        written = self.written(model, prompts)
        self.check_written(prompts, written)

    def written(self, model: AnyModel, prompts: list[list[int]]) -> list[list[int]]:
        return generate(model, prompts, max_new_tokens=NEW).best

    def prompts(self) -> list[list[int]]:
        return [row.tolist() for row in self.rows()]

    def check_written(self, prompts: list[list[int]], written: list[list[int]]) -> None:
        model = self.model()
        for prompt, tokens in zip(prompts, written, strict=True):
            logits = _logits(model, torch.tensor([[*prompt, *tokens]]))[0, len(prompt) - 1 : -1]
            check_likeliest(logits, tokens)

    @torch.no_grad()
    def half(self) -> None:
        """In bf16, outputs equal fp32's within 32 roundings of bf16."""
        expected = self.outputs(self.model(dtype=torch.float32))
        found = self.outputs(self.model(dtype=torch.bfloat16))
        assert found.isfinite().all(), "outputs in bf16 are not finite"
        same(found.float(), expected, "outputs in bf16 differ from those in fp32", HALF)

    @torch.no_grad()
    def compiled(self) -> None:
        """`torch.compile` traces the model, and its outputs stay the same."""
        torch.compiler.reset()  # beyond a number of traced models, PyTorch would run this one without tracing it
        model = self.model(dtype=torch.float32)
        expected = self.outputs(model)
        found = self.outputs(torch.compile(model, backend="eager"))
        same(found, expected, "outputs of the compiled model differ", SINGLE)

    def _needs_causal(self) -> None:
        if not self.causal:
            raise NotChecked("the model is not a decoder, or its pattern lets tokens see later ones")


def _sees_later_tokens(spec: ModelSpec) -> bool:
    return isinstance(spec, Transformer) and spec.decoder is None


def _logits(model: Any, ids: Tensor, layout: Layout | None = None) -> Tensor:
    logits = model(ids, layout=layout)
    if not isinstance(logits, Tensor) or logits.shape[:2] != ids.shape:
        raise NotChecked("the model's outputs are not one vector for each token")
    return logits


def check_likeliest(logits: Tensor, tokens: list[int]) -> None:
    """Each token has the largest logit of its place, but for rounding."""
    for at, token in zip(logits, tokens, strict=True):
        lacking = float(at.max() - at[token])
        assert lacking <= SINGLE * float(at.abs().max()), (
            f"greedy generation writes token {token}, whose logit is {lacking:.2g} below the largest of one pass"
        )


def same(value: Tensor, expected: Tensor, message: str, tolerance: float = TOLERANCE) -> None:
    assert value.shape == expected.shape, f"{message}: shapes {tuple(value.shape)} and {tuple(expected.shape)}"
    distance = float((value - expected).norm() / expected.norm().clamp(min=1e-12))
    assert distance <= tolerance, f"{message} by {distance:.2g} (relative L2 distance)"
