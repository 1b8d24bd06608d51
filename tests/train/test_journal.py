from train_stand_in import train

from qkv.train.metrics import read_metrics


def started(out) -> dict:
    return next(line for line in read_metrics(out / "metrics.jsonl") if line.get("event") == "started")


def test_frozen_parameters_are_told(tmp_path, capsys):
    train(tmp_path, optimizer={"kind": "adamw", "freeze": "layer.*"})
    total = 13 * 8 + 2 * 8 + 8 * 8 + 8
    assert "72 of 192 parameters are frozen." in capsys.readouterr().err
    assert (started(tmp_path)["frozen"], started(tmp_path)["parameters"]) == (72, total)


def test_a_warm_up_that_outlasts_the_run_is_told(tmp_path, capsys):
    train(tmp_path / "long", schedule={"kind": "cosine", "warmup": 12}, max_steps=12)
    assert "rises for 12 steps and the run ends after 12, so that it never reaches its peak" in capsys.readouterr().err
    train(tmp_path / "short", schedule={"kind": "cosine", "warmup": 11}, max_steps=12)
    said = capsys.readouterr().err
    assert "peak" not in said and "frozen" not in said
