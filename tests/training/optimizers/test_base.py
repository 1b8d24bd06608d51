import pytest

from qkv.training.optimizers import SGD, Optimizer


@pytest.mark.parametrize(
    "fields",
    [
        *({"lr": -1.0}, {"lr": float("nan")}, {"betas": [0.9, 1.0]}, {"weight_decay": -0.1}, {"eps": 0}),
        *({"layer_decay": 0.0}, {"layer_decay": 1.5}, {"rates": {"*": 0.0}}, {"freeze": 3}),
    ],
)
def test_values_out_of_range_are_refused(fields):
    with pytest.raises(ValueError, match=next(iter(fields))):
        Optimizer.from_dict({"kind": "adamw", **fields})


def test_an_optimizer_is_its_json():
    spec = SGD(freeze="encoder.*", rates={"*.bias": 2.0}, layer_decay=0.8)
    assert spec.freeze == ("encoder.*",)
    assert Optimizer.from_dict(spec.to_dict()) == spec
