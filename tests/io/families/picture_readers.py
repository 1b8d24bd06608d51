"""What the parity suites of models that read text and pictures share: one comparison of everything with transformers'."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from hub_pictures import flattened
from safetensors.torch import load_file
from torch import Tensor

import qkv
from qkv.core.layout import Layout
from qkv.io.families import FAMILIES
from qkv.io.hub.names import Names

IMAGE, VIDEO = 9, 8  # placeholders of Qwen's models
ROLES = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SAID = {"dtype", "_name_or_path", "_attn_implementation", "transformers_version", "architectures", "vision_use_head"}


@dataclass(frozen=True)
class Given:
    """A batch, as we and as they take it: `inputs` are theirs beside ids and mask, `marked` is the layout with roles for a
    forward pass."""

    ids: Tensor
    layout: Layout
    media: Mapping[str, Any]
    inputs: Mapping[str, Tensor]
    marked: Layout

    @property
    def mask(self) -> Tensor:
        return self.layout.valid.long()


def padded_left(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Layout]:
    layout = Layout.from_lengths([len(row) for row in rows], side="left")
    ids = torch.zeros(layout.shape, dtype=torch.int64)
    for number, row in enumerate(rows):
        ids[number, layout.valid[number]] = torch.tensor(row)
    return ids, layout


def pictures_and_videos(
    model: Any, rows: Sequence[Sequence[tuple[int, int, int]]], videos: bool, apart: bool = False
) -> Given:
    """Prompts of Qwen's models, padded on the left. `rows` has the times (0: a picture), rows and columns of vectors of each
    medium; without `videos`, all are pictures. With `apart`, a text stands between the pictures of a video."""
    vision = model.config.vision_config
    side, frames = vision.patch_size * vision.spatial_merge_size, vision.temporal_patch_size
    prompts, media = list[list[int]](), list[Tensor]()
    patches: dict[str, list[Tensor]] = {"": [], "_videos": []}
    grids: dict[str, list[list[int]]] = {"": [], "_videos": []}
    for row in rows:
        ids = [5, 6]
        for times, height, width in row if videos else [(0, h, w) for _, h, w in row]:
            shape = (vision.in_channels, height * side, width * side)
            clip = torch.randn(times * frames or 1, *shape, dtype=torch.float64)
            media.append(clip if times else clip[0])
            flat, grid = flattened(clip if times else clip.repeat(frames, 1, 1, 1), vision)
            kind, places = ("_videos", VIDEO) if times else ("", IMAGE)
            patches[kind].append(flat)
            grids[kind].append(grid)
            each = [places] * (height * width)
            for i in range(max(times, 1)) if apart else [0]:
                ids += [20 + i, *each, 10, 11] if apart else [*each * max(times, 1), 10, 11]
        prompts.append([*ids, 12, 7])
    padded, layout = padded_left(prompts)
    inputs: dict[str, Tensor] = {"mm_token_type_ids": (padded == IMAGE).int() + 2 * (padded == VIDEO).int()}
    for kind, name in (("", "image"), ("_videos", "video")):
        if patches[kind]:
            inputs |= {f"pixel_values{kind}": torch.cat(patches[kind]), f"{name}_grid_thw": torch.tensor(grids[kind])}
    return Given(padded, layout, {"image": media}, inputs, layout)


def drawn(model: Any, seed: int, scale: float = 0.3) -> Any:
    """A model of theirs in float64 with weights so large that every token depends on every other."""
    torch.manual_seed(seed)
    model = model.eval().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * scale)
    return model


def check(
    theirs: Any,
    given: Given,
    alone: Given,
    folder: Path,
    untrained: str = "-",
    tokens: int = 8,
    close: float = 3e-5,
    widths: Sequence[int] = (1, 3),
) -> None:
    """Compare logits, gradients of a row `alone`, generations of so many tokens with beams of `widths`, and directories both
    ways. Parameters of theirs whose names contain `untrained` are left out."""
    theirs.save_pretrained(folder / "theirs")
    ours = qkv.load(folder / "theirs", dtype="float64").model
    layout, real = given.marked, given.layout.valid
    _check_gradients(theirs, ours, alone, folder)
    with torch.no_grad():
        expected = theirs(input_ids=given.ids, attention_mask=given.mask, **given.inputs).logits
        found = ours(given.ids, layout=layout, media=given.media)
        torch.testing.assert_close(found[real], expected[real], rtol=1e-4, atol=close)
        for beams in widths:
            options = {"max_new_tokens": tokens, "num_beams": beams}
            made = theirs.generate(
                input_ids=given.ids,
                attention_mask=given.mask,
                **given.inputs,
                do_sample=False,
                eos_token_id=None,
                **options,
            )
            got = ours.generate(given.ids, layout=given.layout, media=given.media, **options)
            assert got[:, -tokens:].tolist() == made[:, -tokens:].tolist(), beams
    counted = sum(p.numel() for name, p in theirs.named_parameters() if untrained not in name)
    assert ours.spec.n_parameters == counted
    _check_saved(theirs, ours, folder, untrained)


def _check_gradients(theirs: Any, ours: Any, given: Given, folder: Path) -> None:
    layout, real = given.marked, given.layout.valid
    weight = torch.randn(*given.ids.shape, theirs.config.get_text_config().vocab_size, dtype=torch.float64)
    out = theirs(input_ids=given.ids, attention_mask=given.mask, **given.inputs).logits
    (out[real].log_softmax(-1) * weight[real]).sum().backward()
    (ours(given.ids, layout=layout, media=given.media)[real].log_softmax(-1) * weight[real]).sum().backward()
    holder = copy.deepcopy(theirs)
    with torch.no_grad():
        for held, parameter in zip(holder.parameters(), theirs.parameters(), strict=True):
            held.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
    holder.save_pretrained(folder / "gradients")
    expected = names_of(ours, folder / "theirs").to_ours(load_file(folder / "gradients" / "model.safetensors"))
    mine = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in ours.named_parameters()}
    largest = max(float(grad.norm()) for grad in mine.values())
    for name, grad in mine.items():
        scale = float(expected[name].norm()) + 1e-2 * largest
        assert float((grad - expected[name]).norm()) <= 3e-4 * scale, name
    ours.zero_grad()
    theirs.zero_grad()


def names_of(ours: Any, folder: Path) -> Names:
    config = json.loads((folder / "config.json").read_text())
    family = FAMILIES[config["model_type"]]
    return Names.of(family.table(ours.spec, family.classes[config["architectures"][0]].bare), ours)


def _check_saved(theirs: Any, ours: Any, folder: Path, untrained: str) -> None:
    """As it was loaded, and from its spec alone."""
    ours.save(folder / "ours", "hub")
    fresh = qkv.build(ours.spec, dtype=torch.float64)
    fresh.load_state_dict(ours.state_dict())
    fresh.save(folder / "fresh", "hub")
    for kind in ("ours", "fresh"):
        again = type(theirs).from_pretrained(folder / kind, dtype=torch.float64, attn_implementation="eager")
        for name, tensor in theirs.state_dict().items():
            assert untrained in name or torch.equal(again.state_dict()[name], tensor), name
        for part in ("text_config", "vision_config"):
            before, after = (getattr(model.config, part).to_dict() for model in (theirs, again))
            changed = {key for key in before if before[key] != after.get(key)} - SAID
            if kind == "fresh":
                changed -= {*ROLES, "tie_word_embeddings", "window_size"}  # or of no layer, or rounded down
                if "decoder_sparse_step" in before:  # of no layer, or the same layers said otherwise
                    changed -= {"intermediate_size", "decoder_sparse_step", "mlp_only_layers"}
                if "sliding_attention" not in before.get("layer_types", ()):
                    changed -= {"sliding_window", "rope_parameters"}  # of no layer
            assert not changed, (kind, part, changed)
        assert not getattr(again.config.vision_config, "vision_use_head", False)
        for key, value in theirs.config.to_dict().items():
            if not isinstance(value, dict) and key not in SAID | {*ROLES, "vocab_size"}:
                assert again.config.to_dict()[key] == value, key


def random_sizes(seed: int) -> random.Random:
    return random.Random(f"sizes {seed}")
