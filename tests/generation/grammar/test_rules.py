"""Grammars: outputs are what a schema, an expression or choices allow, whatever the model would say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

import qkv
from qkv.cli import main
from qkv.data.tokenizers.tokenizer import train
from qkv.generation.grammar.rules import LARGEST, Grammar
from qkv.runs.inference.run import Run

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
        "old": {"type": "boolean"},
    },
    "required": ["name", "tags", "old"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def run() -> Run:
    return qkv.load("small-english", device="cpu")


def test_outputs_satisfy_a_json_schema(run: Run) -> None:
    constrained = run.constrained(Grammar.json_schema(SCHEMA))
    found = constrained.generate(["The old man", "Answer:"], num_samples=3, temperature=1.0, seed=1, max_new_tokens=80)
    for text in (text for some in found for text in some):
        jsonschema.validate(json.loads(text), SCHEMA)
    assert len({text for some in found for text in some}) > 3
    options = {"num_beams": 3, "max_new_tokens": 80, "temperature": None, "top_p": None}
    jsonschema.validate(json.loads(constrained.generate("It is", **options)), SCHEMA)
    assert run.grammar is None


def test_outputs_match_an_expression_or_are_a_choice(run: Run) -> None:
    dates = run.constrained(Grammar.regex(r"\d{4}-\d\d-\d\d")).generate(["Today is ", "He"], do_sample=False)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for date in dates)
    choices = ["yes, sir", "no", "perhaps (?)"]
    for text in run.constrained(Grammar.choices(choices)).generate(["Is it", "Was he"], temperature=2.0, seed=3):
        assert text in choices


def test_an_output_that_is_cut_off_begins_as_allowed(run: Run) -> None:
    text = run.constrained(Grammar.regex("(ab)+c")).generate("x", max_new_tokens=5, do_sample=False)
    assert text.replace("ab", "") in ("", "a", "c")


def test_mistakes_are_one_sentence(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (
        lambda: Grammar.regex("(a"),
        lambda: Grammar.regex("a" * (LARGEST + 1)),
        lambda: Grammar.json_schema("{"),
        lambda: Grammar.json_schema("[]"),
        lambda: Grammar.json_schema({"type": "colour"}),
        lambda: Grammar.choices([]),
    ):
        with pytest.raises(ValueError) as error:
            wrong()
        assert "\n" not in str(error.value) and len(str(error.value)) < 450
    words = train("word", ["a b c", "b c d"])
    other = Run(qkv.build(qkv.preset("gpt2", n_layers=1, d_model=8, n_heads=1, vocab_size=20, max_positions=8)), words)
    with pytest.raises(ValueError, match="of bytes"):
        other.constrained(Grammar.regex("a+")).generate("a")
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(SCHEMA), encoding="utf-8")
    assert main(["generate", "small-english", "He", "--json-schema", str(schema), "--max-new-tokens", "80"]) == 0
    jsonschema.validate(json.loads(capsys.readouterr().out), SCHEMA)
    assert main(["generate", "small-english", "He", "--choices", "red,blue"]) == 0
    assert capsys.readouterr().out.strip() in ("red", "blue")
    assert main(["generate", "small-english", "He", "--regex", "(", "--choices", "a"]) == 2
    assert main(["generate", "small-english", "He", "--regex", "("]) == 2
    assert "the grammar is not valid" in capsys.readouterr().err
