"""Writes beam_golden.json: what Hugging Face's `generate` gives on table models; needs transformers 5.

python tests/generation/make_beam_golden.py
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import GenerationConfig, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

SIZES = ((12, 1), (30, 2))  # (vocabulary, seed)
SETTINGS = {
    "num_beams": (4,),
    "early_stopping": (False, True, "never"),
    "length_penalty": (0.0, 1.0, 2.0, -1.0),
}
EXTRAS = (
    {},
    {"no_repeat_ngram_size": 2, "max_new_tokens": 12},
    {"min_new_tokens": 4, "max_new_tokens": 8},
    {"repetition_penalty": 1.4, "eos": [2, 3]},
)


def table(vocab: int, seed: int) -> torch.Tensor:
    """The logits of conftest's `table(vocab, order=2, seed=seed)`."""
    return torch.from_numpy(2.0 * np.random.RandomState(seed).standard_normal((vocab,) * 3)).float()


class Config(PretrainedConfig):
    model_type = "table"


class TableLM(PreTrainedModel, GenerationMixin):
    config_class = Config

    def __init__(self, table: torch.Tensor) -> None:
        super().__init__(Config(vocab_size=table.shape[-1]))
        self.table, self.anchor = table, torch.nn.Parameter(torch.zeros(1))

    def forward(self, input_ids: torch.Tensor, **_: object) -> CausalLMOutput:
        logits = self.table[input_ids[:, -2], input_ids[:, -1]][:, None]
        return CausalLMOutput(logits=logits)


def main() -> None:
    cases = []
    for (vocab, seed), values, extra in itertools.product(SIZES, itertools.product(*SETTINGS.values()), EXTRAS):
        options = {"max_new_tokens": 10, **dict(zip(SETTINGS, values, strict=True)), **extra}
        eos = options.pop("eos", [2])
        options["num_samples"] = options["num_beams"]
        prompts = [[5, 6], [9, 9]]
        model = TableLM(table(vocab, seed))
        config = {key: value for key, value in options.items() if key != "num_samples"}
        out = model.generate(
            torch.tensor(prompts),
            attention_mask=torch.ones(2, 2),
            generation_config=GenerationConfig(
                **config,
                num_return_sequences=options["num_samples"],
                do_sample=False,
                use_cache=False,
                eos_token_id=eos,
                pad_token_id=0,
                return_dict_in_generate=True,
                output_scores=True,
            ),
        )
        sequences = []
        for row in out.sequences[:, 2:].tolist():
            end = next((i + 1 for i, token in enumerate(row) if token in eos), len(row))
            sequences.append(row[:end])
        scores = [round(score, 4) for score in out.sequences_scores.tolist()]
        cases.append({"table": [vocab, seed], "eos": eos, **options, "sequences": sequences, "scores": scores})
    data = {"transformers": transformers.__version__, "prompts": prompts, "cases": cases}
    path = Path(__file__).with_name("beam_golden.json")
    path.write_text(json.dumps(data, separators=(",", ":")).replace('{"table"', '\n{"table"') + "\n")


if __name__ == "__main__":
    main()
