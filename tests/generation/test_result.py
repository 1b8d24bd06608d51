"""`Generated`: the first samples, whole sequences and the padded tensor."""

from __future__ import annotations

from qkv.generation.result import Generated

GENERATED = Generated(((1,), (2, 3)), [[[4, 5], [6]], [[7], []]], [["eos", "stop"], ["length", "stuck"]])


def test_best_is_the_first_sample_of_each_prompt() -> None:
    assert GENERATED.best == [[4, 5], [7]]
    assert GENERATED.full() == [[[1, 4, 5], [1, 6]], [[2, 3, 7], [2, 3]]]


def test_prompts_are_padded_on_the_left_and_new_tokens_on_the_right() -> None:
    rows = [[0, 1, 4, 5], [0, 1, 6, 0], [2, 3, 7, 0], [2, 3, 0, 0]]
    assert GENERATED.tensor().tolist() == rows
    assert GENERATED.tensor(pad_id=9, width=3).tolist()[0] == [9, 9, 1, 4, 5]
