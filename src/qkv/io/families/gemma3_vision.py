"""Gemma 3 with its eyes (Gemma Team 2025): SigLIP's ViT, mean vectors of its states, and a Gemma 3 that is bidirectional
within a picture.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...nn.layers.norm import RMSNorm
from ...nn.layers.patches import Projector
from ...nn.models.joint import Medium, Tower, with_media
from ...nn.models.transformer import Transformer
from ...nn.patterns.algebra import parts_of
from ...nn.patterns.basic import Pattern, Window, causal, media, window
from ..hub.family import Class, Family, Table, at
from ..hub.keys import ANY, Key, changed
from ..hub.names import Row
from ..hub.transforms import Transposed
from . import parts
from .classes import BARE
from .gemma2 import GEMMA2_NAMES
from .gemma3 import FAMILY as GEMMA3
from .paligemma import MODULES, llava_names
from .parts import READER, Part, vision_of, with_patterns
from .places import sliding, window_of
from .qwen3 import QK_NORM
from .siglip_vision import HEADLESS, VISION

# transformers does not bound the logits of this class, whatever its text says.
TEXT = replace(
    GEMMA3,
    fields=changed(GEMMA3.fields, without=("logits_softcap",)),
    places={size: place for size, place in GEMMA3.places.items() if size != "logits_softcap"},
    harmless={**GEMMA3.harmless, "final_logit_softcapping": None},
)
TOWER = "decoder.embedding.media.0.reads"

# -- the model -----------------------------------------------------------------------------------------------------------


def gemma3_vision(
    *, text: Transformer, vision: Transformer, token: int = 262144, pictures: int = 256, head: bool = True
) -> Transformer:
    """A decoder that reads pictures through a ViT, each as the √pictures × √pictures mean vectors of its states.

    Tokens of a picture attend to each other in both directions; those within a window do in layers with one.
    """
    assert vision.encoder is not None and vision.encoder.embedding.grid is not None
    patches, side = vision.encoder.embedding.grid.rows, int(pictures**0.5)
    if side < 1 or patches % side:
        raise ValueError(
            f"the {patches} × {patches} patches of a picture can't become {pictures} tokens (mm_tokens_per_image); their "
            "root has to divide the patches of a row"
        )
    norm = RMSNorm(eps=at(vision, "encoder.blocks.0.norm.eps"), offset=1.0)
    projector = Projector(pool=patches // side, norm=norm, bias=False)
    tower = Tower(stack=vision.encoder, width=vision.d_model, projector=projector)
    spec = with_media(text, Medium(name="image", token=token, reads=tower))
    spec = with_patterns(spec, lambda pattern: _seeing(window_of(pattern), side**2))
    return spec if head else spec.replace(head=None)


def _seeing(size: int | None, tokens: int) -> Pattern:
    """The pattern of a layer, with a window of this size if any: bidirectional within pictures of so many tokens."""
    both = causal() | media()
    return both if size is None else window(size, ahead=tokens) & both


def text_of(spec: Transformer) -> Transformer:
    """The decoder without its media. Raises AttributeError for one whose layers are not bidirectional within pictures."""
    tokens = at(spec, TOWER).n_tokens

    def causal_of(pattern: Pattern) -> Pattern:
        size = next((part.size for part in parts_of(pattern) if isinstance(part, Window)), None)
        if pattern != _seeing(size, tokens):
            raise AttributeError(f"{pattern} is not bidirectional within pictures")
        return sliding(size)

    return with_patterns(parts.text_of(spec), causal_of)


# -- the Hub's files -----------------------------------------------------------------------------------------------------


def names(spec: Transformer) -> Table:
    """The decoder's names below `language_model`, the tower's below `vision_tower`, and the projection's."""
    ours = f"{READER}.projector"
    return (
        *llava_names(spec, (*GEMMA2_NAMES, QK_NORM)),
        *(
            row
            for prefix in ("multi_modal_projector", "model.multi_modal_projector")
            for row in (
                Row(f"{prefix}.mm_input_projection_weight", f"{ours}.out.weight", Transposed()),
                Row(f"{prefix}.mm_soft_emb_norm.weight", f"{ours}.norm.weight"),
            )
        ),
    )


SIZES: dict[str, dict[str, Any]] = {}

FAMILY = Family(
    model_type="gemma3",
    make=gemma3_vision,
    classes={"Gemma3ForConditionalGeneration": Class(), "Gemma3Model": BARE},
    fields=(
        Part("text_config", "text", TEXT, shared={"tie_word_embeddings": True}),
        Part("vision_config", "vision", VISION),
        Key("image_token_index", "token", 262144, also=("image_token_id",)),
        Key("mm_tokens_per_image", "pictures", 256),
    ),
    places={
        "text": text_of,
        "vision": vision_of,
        "token": "decoder.embedding.media.0.token",
        "pictures": lambda spec: at(spec, TOWER).n_tokens,
    },
    names=names,
    modules=MODULES,
    inside=HEADLESS,
    harmless=dict.fromkeys(("boi_token_index", "eoi_token_index", "boi_token_id", "eoi_token_id"), ANY),
)
