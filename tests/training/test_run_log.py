from train_stand_in import train

from qkv.training.logging.metrics_file import read_metrics


def started(out) -> dict:
    return next(line for line in read_metrics(out / "metrics.jsonl") if line.get("event") == "started")


def test_frozen_parameters_are_told(tmp_path, capsys):
    train(tmp_path, optimizer={"kind": "adamw", "freeze": "layer.*"})
    total = 13 * 8 + 2 * 8 + 8 * 8 + 8
    assert "Training 120 of 192 parameters (62 %); the others are frozen." in capsys.readouterr().err
    assert (started(tmp_path)["frozen"], started(tmp_path)["parameters"]) == (72, total)


def test_a_run_that_ends_inside_its_warm_up_says_so(tmp_path, capsys):
    schedule = {"kind": "inverse-square-root", "warmup": 4000}
    train(tmp_path / "a", schedule=schedule, max_steps=None, max_time=0.05)
    assert "inside its warm-up of 4,000 steps" in capsys.readouterr().err


def test_an_evaluation_that_equals_the_best_is_not_called_the_best(tmp_path, capsys):
    train(tmp_path, evaluate=lambda model, step: {"loss": 1.0}, eval_every=3, patience=2)
    said = capsys.readouterr().err
    assert said.count("(best)") == 1
    assert "(equals the best)  no better 1 of 2 times" in said and "(equals the best)  no better 2 of 2 times" in said


def test_a_warm_up_that_outlasts_the_run_is_told(tmp_path, capsys):
    train(tmp_path / "long", schedule={"kind": "cosine", "warmup": 12}, max_steps=12)
    assert "rises for 12 steps and the run ends after 12, so it never reaches its peak" in capsys.readouterr().err
    train(tmp_path / "short", schedule={"kind": "cosine", "warmup": 11}, max_steps=12)
    said = capsys.readouterr().err
    assert "peak" not in said and "frozen" not in said
