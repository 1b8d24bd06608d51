"""Small models of every family with layers to quantize."""

from __future__ import annotations

from prunable_models import FAMILIES as PRUNABLE

FAMILIES = {
    name: (spec.replace({f"{stack}.blocks.*.feedforward.d_ff": 32 for stack, _ in spec.stacks()}), heads)
    for name, (spec, heads) in PRUNABLE.items()
}
