import pytest

from qkv.training.settings import Training
from qkv.training.weight_averaging import LastCheckpoints, NoAverage


@pytest.mark.parametrize(
    ("text", "wanted"), [("90s", 90.0), ("10m", 600.0), ("1h30m", 5400.0), ("2d", 172800.0), ("45", 45.0), (7, 7.0)]
)
def test_durations_are_read_with_their_units(text, wanted):
    assert Training.from_dict({"max_time": text}).max_time == wanted


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"max_time": "soon"}, "max_time: 'soon' is not a duration"),
        ({"max_time": -1}, "max_time: input should be greater than 0, not -1"),
        ({"max_steps": 0}, "max_steps"),
        ({"max_steps": None}, "nothing would end this run"),
        ({"max_steps": None, "max_time": 9, "schedule": "cosine"}, "set max_steps"),
        ({"schedule": {"kind": "linear", "unit": "time"}}, "set max_time"),
        ({"accumulate": 0}, "accumulate"),
        ({"clip_norm": float("inf")}, "clip_norm"),
        ({"clip_value": 0.0}, "clip_value"),
        ({"keep": 0}, "keep"),
        ({"patience": -2}, "patience"),
        ({"max_bad_steps": 0}, "max_bad_steps"),
        ({"precision": "fp8"}, "precision"),
        ({"compile": "always"}, "compile: it is true, false or auto, not 'always'"),
        ({"compile": None}, "it is true, false or auto"),
        ({"mode": "best"}, "mode"),
        ({"optimizer": "adam"}, "there is no optimizer 'adam'; did you mean 'adamw'"),
        ({"schedule": "cosin"}, "there is no schedule 'cosin'; did you mean 'cosine'"),
        ({"average": 5}, "needs keep to be that much too, not 3"),
        ({"average": 1, "keep": 9}, "greater than or equal to 2"),
        ({"max_step": 5}, "no such field; did you mean 'max_steps'"),
    ],
)
def test_what_is_out_of_range_gets_a_clear_sentence(fields, sentence):
    with pytest.raises(ValueError, match="(?s)" + sentence.replace("(", r"\(")) as caught:
        Training.from_dict(fields)
    assert "\n" not in str(caught.value)


def test_json_and_short_forms():
    training = Training.from_dict(
        {"average": 4, "keep": 4, "schedule": "cosine", "optimizer": {"kind": "sgd", "lr": 1}}
    )
    assert training.average == LastCheckpoints(last=4)
    assert Training.from_dict({"average": 0}).average == NoAverage()
    assert Training.from_json(training.to_json()) == training
    assert training.replace({"optimizer.lr": 0.5}).optimizer.lr == 0.5
