"""PaliGemma (Beyer et al. 2024) and PaliGemma 2 (Steiner et al. 2024): SigLIP's ViT, a linear layer and a Gemma whose
prompts are bidirectional.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...nn.layers.patches import Projector
from ...nn.models.joint import Medium, Tower, with_media
from ...nn.models.transformer import Transformer
from ...nn.patterns.basic import Or, Pattern, Prefix, prefix
from ..hub.family import Class, Family, Table, at
from ..hub.keys import ANY, Config, Key
from ..hub.names import Row
from . import parts
from .classes import BARE
from .gemma import FAMILY as GEMMA
from .gemma2 import FAMILY as GEMMA2
from .gemma2 import GEMMA2_NAMES
from .llama import NAMES
from .parts import READER, Part, vision_of, with_patterns
from .siglip_vision import HEADLESS, VISION, tower_names

# What transformers notes in the configuration of the text.
NOTED = dict.fromkeys(("num_image_tokens", "use_bidirectional_attention"), ANY)
TEXT, TEXT2 = (replace(family, harmless={**family.harmless, **NOTED}) for family in (GEMMA, GEMMA2))

# -- the model -----------------------------------------------------------------------------------------------------------


def paligemma(
    *, text: Transformer, vision: Transformer, token: int = 256000, width: int | None = None, head: bool = True
) -> Transformer:
    """A decoder that reads pictures through a ViT. Tokens with the role PREFIX, which are the picture and the prompt, attend
    to each other in both directions. `width` is that of the projection, which has to be the decoder's."""
    if width not in (None, text.d_model):
        raise ValueError(
            f"pictures are projected to a width of {width}, and the text has {text.d_model}; make them equal"
        )
    assert vision.encoder is not None
    tower = Tower(stack=vision.encoder, width=vision.d_model, projector=Projector())
    spec = with_media(text, Medium(name="image", token=token, reads=tower))
    spec = with_patterns(spec, lambda pattern: pattern | prefix(within=True))
    return spec if head else spec.replace(head=None)


def text_of(spec: Transformer) -> Transformer:
    """The decoder without its media. Raises AttributeError for one whose layers are not bidirectional in the prefix."""
    return with_patterns(parts.text_of(spec), _causal_of)


def _causal_of(pattern: Pattern) -> Pattern:
    if not isinstance(pattern, Or) or len(pattern.parts) != 2 or pattern.parts[1] != Prefix(within=True):
        raise AttributeError(f"{pattern} is not bidirectional in the prefix")
    return pattern.parts[0]


@dataclass(frozen=True)
class ProjectionWidth:
    """The field `width`. transformers reads no `hidden_size` beside the parts."""

    size: str = "width"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"projection_dim": 2048, "hidden_size": 2048}

    def read(self, config: Config) -> int:
        width: int = config["projection_dim"]
        return width

    def write(self, value: int, sizes: Mapping[str, Any]) -> dict[str, Any]:
        return {"projection_dim": value, "hidden_size": value}


def names(spec: Transformer) -> Table:
    """The decoder's names below `language_model`, the tower's below `vision_tower`, and the projection's."""
    text = GEMMA2_NAMES if at(spec, "decoder.blocks.0.placement").kind == "sandwich" else NAMES
    return (
        *llava_names(spec, text),
        Row("multi_modal_projector.linear.*", f"{READER}.projector.out.*"),
        Row("model.multi_modal_projector.linear.*", f"{READER}.projector.out.*"),
    )


def llava_names(spec: Transformer, text: Table) -> Table:
    """The names of a decoder and a tower in published files, and in the memory of transformers 5."""
    published = [row.renamed("lm_head", "language_model.lm_head") for row in text]
    published = [
        row.renamed("model.", "language_model.model.") if row.theirs.startswith("model.") else row for row in published
    ]
    return (
        *published,
        *(row.renamed("model.", "model.language_model.") for row in text),
        *tower_names(spec, "vision_tower.vision_model", "vision_tower", "model.vision_tower"),
    )


MODULES = {
    r"^language_model\.model\.": "model.language_model.",
    r"^language_model\.lm_head": "lm_head",
    r"^vision_tower\.vision_model\.": "model.vision_tower.",
    r"^multi_modal_projector\.": "model.multi_modal_projector.",
}

SIZES: dict[str, dict[str, Any]] = {}

FAMILY = Family(
    model_type="paligemma",
    make=paligemma,
    classes={"PaliGemmaForConditionalGeneration": Class(), "PaliGemmaModel": BARE},
    fields=(
        Part(
            "text_config",
            "text",
            TEXT,
            others=(TEXT2,),
            shared={"tie_word_embeddings": True},
            usual={
                "vocab_size": 257152,
                "hidden_size": 2048,
                "intermediate_size": 16384,
                "num_hidden_layers": 18,
                "num_attention_heads": 8,
                "num_key_value_heads": 1,
            },
        ),
        Part(
            "vision_config",
            "vision",
            VISION,
            usual={
                "hidden_size": 1152,
                "intermediate_size": 4096,
                "patch_size": 14,
                "num_hidden_layers": 27,
                "num_attention_heads": 16,
            },
        ),
        Key("image_token_index", "token", 256000, also=("image_token_id",)),
        ProjectionWidth(),
    ),
    places={
        "text": text_of,
        "vision": vision_of,
        "token": "decoder.embedding.media.0.token",
        "width": "d_model",
    },
    names=names,
    modules=MODULES,
    inside=HEADLESS,
    harmless=dict.fromkeys(("vocab_size", "ignore_index", "_vocab_size"), ANY),
)
