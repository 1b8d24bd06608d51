"""Three tasks for lm-evaluation-harness, with their data: choices, outputs and texts."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from auto_models import config, llama, words

WORDS = [f"w{i}" for i in range(30)]
MULTIPLE_CHOICE = """
task: own_choices
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/choices.jsonl}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: gold
metric_list: [{{metric: acc}}, {{metric: acc_norm}}]
"""
GENERATED = """
task: own_outputs
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/outputs.jsonl}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: [w3], max_gen_toks: 8, do_sample: false}}
metric_list: [{{metric: exact_match}}]
"""
ROLLING = """
task: own_texts
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/texts.jsonl}}}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list: [{{metric: word_perplexity}}, {{metric: bits_per_byte}}]
"""


def own_tasks(folder: Path) -> Path:
    """A folder of three tasks with their data."""
    draw = random.Random(0)

    def words_of(n: int) -> str:
        return " ".join(draw.choices(WORDS, k=n))

    rows: dict[str, list[dict[str, Any]]] = {
        "choices": [
            {
                "question": words_of(draw.randint(3, 30)),
                "choices": [words_of(draw.randint(1, 4)) for _ in range(4)],
                "gold": draw.randrange(4),
            }
            for _ in range(30)
        ],
        "outputs": [{"question": words_of(5), "answer": words_of(1)} for _ in range(10)],
        "texts": [{"text": words_of(70)} for _ in range(4)],
    }
    folder.mkdir()
    for name, entries in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in entries))
    for name, text in (("choices", MULTIPLE_CHOICE), ("outputs", GENERATED), ("texts", ROLLING)):
        (folder / f"{name}.yaml").write_text(text.format(folder=folder))
    return folder


def saved(folder: Path, **changes: Any) -> Any:
    """The directory of a model whose texts begin with a token, and the model of transformers."""
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_config(config(llama(**changes), seed=2)).eval()
    tokenizer = words()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing("[BOS] $A", None, [("[BOS]", 1)])
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer
