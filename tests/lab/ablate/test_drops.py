"""What an ablation removes."""

from __future__ import annotations

from qkv.lab.ablate.ablation import Ablation
from qkv.lab.ablate.drops import PARTS


def _labels(ablation: Ablation) -> list[str]:
    return [variant.label for variant in ablation.variants.values()]


def test_every_part_is_removed_by_default() -> None:
    ablation = Ablation.load("localise")
    assert _labels(ablation) == ["baseline", *(f"without {part}" for part in PARTS)]
    assert len(ablation.seeds) == 3
    spec = ablation.variant("without-residual").spec()
    assert {block.residual for stack in (spec.encoder, spec.decoder) for block in stack.blocks} == {"none"}
    assert ablation.variant("without-scale").spec().decoder.blocks[0].cross.scale == 1
    assert ablation.variant("without-heads").spec().encoder.blocks[0].attention.n_heads == 1
    assert (
        ablation.variant("without-feedforward").spec().n_parameters < ablation.variant("baseline").spec().n_parameters
    )
