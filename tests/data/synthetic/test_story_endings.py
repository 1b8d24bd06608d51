"""Generated story endings: one fits, and each of the others is wrong in one way."""

from __future__ import annotations

from qkv.data.synthetic.story_endings import _NEEDS, _SHE, Endings


def test_one_ending_fits_and_each_other_is_wrong_in_one_thing() -> None:
    matters = {does: (state, things) for state, (does, things) in _NEEDS.items()}
    for e in Endings(train=200).examples("train"):
        state = next(state for state in _NEEDS if f" is {state} " in e["text"])
        she = any(f" {name} is " in e["text"] for name in _SHE)
        wrong = []
        for candidate in e["choices"]:
            pronoun, rest = candidate.split(" ", 1)
            does = next(does for does in matters if rest.startswith(does))
            answers, things = matters[does]
            wrong.append(((pronoun == "she") != she, answers != state, rest.removeprefix(f"{does} ") not in things))
        assert not any(wrong[e["answer"]])
        assert sorted(map(sum, wrong)) == [0, 1, 1, 1] and len(set(wrong)) == 4
