"""A run that embeds texts as an encoder of the library mteb."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional as F

from ...io.directories import sentence_transformers
from ..inference.run import Run, load

if TYPE_CHECKING:
    from mteb.models.model_meta import ModelMeta


class MtebEncoder:
    """mteb's encoder protocol over `Run.embed_array`.

    model_name: a run, or the name or directory of one. A prompt of the directory is used if it has the name of the task,
    of its type, or of what is embedded (`query`, `document`), the more special first, as by mteb's own encoders. The
    similarity is the cosine. Raises ValueError as `qkv.load` and `embed` do.
    """

    def __init__(
        self, model_name: Run | str | Path, revision: str | None = None, *, device: str | None = None, **options: Any
    ) -> None:
        given = model_name if isinstance(model_name, Run) else None
        self.run = given or load(str(model_name), device or "auto", revision=revision, **options)
        self.revision = revision
        settings = None if self.run.path is None else sentence_transformers.read(self.run.path, self.run.allow_pickle)
        self.prompts: Mapping[str, str] = {} if settings is None else settings.prompts

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: object,
        hf_split: str = "",
        hf_subset: str = "",
        prompt_type: object = None,
        **options: Any,
    ) -> NDArray[np.float32]:
        """Return an array (texts, M) for the texts under `text` of each batch."""
        texts = [text for batch in inputs for text in batch["text"]]
        return self.run.embed_array(texts, prompt=self._prompt(task_metadata, prompt_type))

    def _prompt(self, task: Any, prompt_type: Any) -> str | None:
        of = getattr(prompt_type, "value", prompt_type)
        names = (f"{task.name}-{of}", task.name, f"{task.type}-{of}", task.type, of)
        return next((name for name in names if name in self.prompts), None)

    def similarity(self, embeddings1: ArrayLike, embeddings2: ArrayLike) -> Tensor:
        """Return the cosines of all pairs, (A, B)."""
        return _units(embeddings1) @ _units(embeddings2).T

    def similarity_pairwise(self, embeddings1: ArrayLike, embeddings2: ArrayLike) -> Tensor:
        """Return the cosine of each vector with the one in its place."""
        return (_units(embeddings1) * _units(embeddings2)).sum(-1)

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """What mteb writes beside results."""
        from mteb.models.model_meta import ModelMeta

        unknown: dict[str, Any] = dict.fromkeys(
            ("release_date", "languages", "memory_usage_mb", "license", "public_training_code", "training_datasets")
        )
        return ModelMeta(
            **unknown,
            loader=None,
            name=f"qkv/{self.run.name.replace('/', '-')}",
            revision=self.revision,
            n_parameters=self.run.model.spec.n_parameters,
            max_tokens=self.run.model.max_positions,
            embed_dim=None,
            open_weights=None,
            public_training_data=None,
            framework=["PyTorch"],
            similarity_fn_name="cosine",
            use_instructions=bool(self.prompts),
        )


def _units(vectors: ArrayLike) -> Tensor:
    return F.normalize(torch.as_tensor(np.asarray(vectors)).float(), dim=-1)
