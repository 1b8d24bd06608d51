"""`QkvConfig`: a spec as a configuration of transformers."""

from __future__ import annotations

from typing import Any, ClassVar

import transformers

from ...core.several import shown
from ...core.spec import SCHEMA
from ...nn.models.base import ModelSpec
from ...nn.models.transformer import Transformer
from ..directories.origin import MODEL_TYPE


class QkvConfig(transformers.PreTrainedConfig):
    """The spec of a qkv model, and what transformers keeps beside it: token ids, names of classes, decoding.

    `spec` is a `Transformer`, or its JSON form, which stands under `qkv` as in directories of qkv. Sizes such as
    `hidden_size` are read from it.
    """

    model_type = MODEL_TYPE

    auto_map: ClassVar[dict[str, str]] = {}  # TRL reads this; directories contain no code
    qkv: dict[str, Any] | None = None
    seed: int = 0

    def __post_init__(self, spec: ModelSpec | dict[str, Any] | None = None, **kwargs: Any) -> None:
        if spec is not None and not isinstance(spec, ModelSpec | dict):
            raise ValueError(
                f"the spec of a QkvConfig is a Transformer, such as qkv.preset('llama'), not {shown(spec)}"
            )
        if spec is not None:
            self.qkv = {"schema": SCHEMA, **(spec.to_dict() if isinstance(spec, ModelSpec) else spec)}
        if self.qkv is not None:
            known = self.spec
            first = known.output.blocks[0].attention
            self.vocab_size, self.hidden_size = known.vocab_size, known.d_model
            self.num_hidden_layers = known.output.n_layers
            self.num_attention_heads = getattr(first, "n_heads", 1)
            self.max_position_embeddings = known.max_positions
            kwargs["is_encoder_decoder"] = known.is_encoder_decoder
            self.final_logit_softcapping = getattr(known.head, "softcap", None)
            self.tie_word_embeddings = True  # what is tied, the spec says
            labels = getattr(known.head, "labels", None)
            if labels is not None and not {"id2label", "num_labels"} & kwargs.keys():
                kwargs["num_labels"] = labels
        super().__post_init__(**kwargs)

    @property
    def spec(self) -> Transformer:
        """The spec as a value. Raises ValueError for a configuration without one, or one that is no Transformer."""
        if self.qkv is None:
            raise ValueError("a QkvConfig needs a spec: QkvConfig(spec=qkv.preset('gpt2')), or the JSON form of one")
        spec = ModelSpec.from_dict(self.qkv)
        if not isinstance(spec, Transformer):
            raise ValueError(f"transformers takes qkv's Transformers, not a {spec.kind}; use qkv.load and run.generate")
        return spec
