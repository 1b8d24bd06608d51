"""`qkv cost`: what it prints."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from run_tiny import TINY

import qkv
from qkv.cli import main

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_cost_prints_parameters_memory_and_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "reverse", *TINY, "--no-data"]) == 0
    printed = capsys.readouterr().out
    for said in ("decoder cross-attention", "total", "256 tokens (2 × (64 + 64)), in fp32", "MiB at most", "estimate"):
        assert said in printed
    assert main(["cost", "gpt2", "n_layers=1", "--rows", "1", "--length", "16", "--precision", "bf16", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["shape"] == {"rows": 1, "length": 16, "source": 0}
    assert told["parameters"] == sum(part["parameters"] for part in told["parts"])
    assert told["memory"]["peak"] > told["memory"]["weights"] >= 4 * told["parameters"]
    generation = told["generation"]
    assert [row["name"] for row in generation["rows"]][:2] == ["a prompt of 16", "a token, bf16 cache"]
    assert generation["rows"][1]["cache"] == 2 * 16 * 768 * 2 and told["whole_run"] is None


def test_a_token_and_a_whole_training(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["cost", "gpt2", "n_layers=1", "--rows", "1", "--length", "16", "--hardware", "h100", "--context", "32"]
    assert main([*command, "--tokens", "10B", "--devices", "8"]) == 0
    printed = capsys.readouterr().out
    for said in (
        "after 32 tokens, on h100",
        "  on h100   at least ",
        "a token, no cache",
        "memory",
        "A training of 10,000,000,000 tokens on 8 × h100",
    ):
        assert said in printed
    assert all(said in printed for said in ("hours", "kWh", "dollars", "by hours × peak"))
    assert main([*command, "--steps", "1"]) == 0
    run = capsys.readouterr().out.partition("A training of 16 tokens")[2]
    assert re.search(r"time +[\d.]+ (µs|ms)\n", run) and run.count("less than 0.001") == 2
    described = '{"bf16": 1e12, "bandwidth": 1e10, "memory": 1e9}'
    assert main([*command[:-4], "--hardware", described, "--tokens", "1e6", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["whole_run"]["price"] is None and told["whole_run"]["tokens"] == 1e6
    assert told["generation"]["rows"][1]["seconds"] == told["generation"]["rows"][1]["bytes"] / 1e10


def test_forty_days_or_ten_hours(capsys: pytest.CaptureFixture[str]) -> None:
    """1e21 FLOPs against 1e19, by hours × peak, on as many P100s as take 40 days for the first."""
    command = ["cost", "transformer-base", "--rows", "8", "--length", "25", "--hardware", "p100", "--precision", "fp32"]

    def told(*options: str) -> dict[str, float]:
        assert main([*command, "--devices", "30", *options, "--json"]) == 0
        run: dict[str, float] = json.loads(capsys.readouterr().out)["whole_run"]
        return run

    long, short = told("--flops", "1e21"), told("--flops", "1e19")
    assert long["seconds"] / 86_400 == pytest.approx(1e21 / 30 / 9.5e12 / 86_400) == pytest.approx(40.6, abs=0.05)
    assert short["seconds"] / 3600 == pytest.approx(9.7, abs=0.05)
    assert long["hardware_flops"] == pytest.approx(1e21) and long["flops"] == pytest.approx(0.4e21)
    days = told("--days", "0.4")
    assert days["seconds"] == pytest.approx(9.6 * 3600) and days["hardware_flops"] == pytest.approx(9.85e18, rel=1e-3)
    assert told("--tokens", str(days["tokens"]))["seconds"] == pytest.approx(days["seconds"])


def test_the_active_parameters_of_a_mixture(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "mixtral-8x7b", "n_layers=1", "--rows", "1", "--length", "8"]) == 0
    assert "used by each token" in capsys.readouterr().out
    assert main(["show", "mixtral-8x7b", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["active parameters"] < shown["parameters"]


def test_steps_and_precision_of_a_whole_training(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["cost", "gpt2", "n_layers=1", "--rows", "2", "--length", "16", "--hardware", "h100"]
    assert main([*command, "--steps", "1000", "--json"]) == 0
    run = json.loads(capsys.readouterr().out)["whole_run"]
    assert run["tokens"] == 1000 * 2 * 16 and run["hardware_flops"] == pytest.approx(run["flops"] / 0.4)
    assert main([*command, "--steps", "1000", "--precision", "fp32", "--roofline", "--json"]) == 0
    slower = json.loads(capsys.readouterr().out)
    assert slower["whole_run"]["seconds"] == pytest.approx(run["seconds"] * 989.4 / 67)
    assert slower["generation"]["precision"] == "fp32" and slower["roofline"][0]["mfu"] < 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--hardware", "h10"], "there is no hardware 'h10'; did you mean 'h100'"),
        (["--hardware", "{bf16}"], "--hardware is a name or a JSON object, not '{bf16}'"),
        (["--hardware", "missing.json"], "--hardware: there is no file missing.json"),
        (["--tokens", "many"], "--tokens is a number such as 300e9 or 1.5B, not 'many'"),
        (["--tokens", "1B", "--steps", "9"], "a whole training is given by --tokens or by --steps, not both"),
        (
            ["--tokens", "1B", "--days", "9"],
            "a whole training is given by one of --tokens, --steps, --flops and --days",
        ),
        (["--flops=-1e19"], "--flops is a number above 0, not -1e+19"),
        (["--days", "nan"], "--days is a number above 0, not nan"),
        (["--context", "4096"], "a context of 4,096 tokens is longer than the model's 1,024"),
        (["--tokens", "-5"], "a training has a finite number of tokens, at least 1, not -5"),
        (["--tokens", "1e400"], "a training has a finite number of tokens, at least 1, not inf"),
        (["--devices", "4"], "--devices is for a whole training; give --tokens, --steps, --flops or --days"),
        (
            ["--utilization", "0.3"],
            "--utilization is for a whole training; give --tokens, --steps, --flops or --days",
        ),
        (["--tokens", "1B", "--utilization", "2"], "utilization is a share of the peak above 0, at most 1, not 2.0"),
    ],
)
def test_mistakes_are_one_sentence(given: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "gpt2", "n_layers=1", "--rows", "1", "--length", "16", *given]) == 2
    assert message in capsys.readouterr().err


def test_a_context_says_nothing_of_a_model_that_does_not_generate(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "bert-base", "n_layers=1", "--rows", "1", "--length", "16", "--context", "9"]) == 2
    assert "bert-base does not generate text token by token" in capsys.readouterr().err


@pytest.mark.slow
def test_measured_times_replace_estimates(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["cost", "reverse", *TINY, "--no-data", "--measure"]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert "timing the model with one and three layers" in printed.err
    assert (
        "timed here" in printed.out and "tokens after 64 take about" in printed.out and "an estimate" not in printed.out
    )
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["seconds"] == told["measured"]["step"] > 0 and told["measured"]["generation"] > 0
    assert main(["cost", "rnnsearch", "--measure"]) == 2
    assert "--measure times the layers of a Transformer" in capsys.readouterr().err


def test_parameters_are_written_as_in_papers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "gpt2", "mixtral-8x7b"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"mixtral-8x7b +46\.7B +12\.9B +25\.6G +93\.4GB", printed)
    assert re.search(r"gpt2 +124M +124M +257M +249MB", printed)


def saved(folder: Path) -> tuple[str, str]:
    """A directory of the Hub, and its number of parameters as it is printed."""
    spec = qkv.preset("gpt2", n_layers=1, d_model=32, n_heads=2, vocab_size=300, max_positions=64)
    return str(qkv.build(spec).save(folder, to="hub")), f"{spec.n_parameters:,}"


def test_a_model_in_a_directory_without_a_recipe_takes_no_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, weights = saved(tmp_path / "hub")
    assert main(["cost", "fit", folder, "--for", "decoding"]) == 0
    assert weights in capsys.readouterr().out
    assert main(["cost", folder, "n_layers=2"]) == 2
    assert "is a model without a recipe; leave out 'n_layers=2'" in capsys.readouterr().err


@pytest.mark.slow
def test_every_command_of_costs_reads_a_directory_without_a_recipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, weights = saved(tmp_path / "hub")
    assert main(["cost", folder]) == 0
    assert weights in capsys.readouterr().out
    assert main(["cost", "fit", folder, "--adapter", "lora", "--for", "training", "--rows", "2", "--length", "16"]) == 0
    assert "LoRA of rank 8 over frozen fp32 weights fits" in capsys.readouterr().out
    assert main(["cost", "compare", folder, "gpt2", "--length", "64"]) == 0
    assert "hub" in capsys.readouterr().out


def test_averages_over_two_stacks_are_called_averages(capsys: pytest.CaptureFixture[str]) -> None:
    said = "FLOPs/token of an encoder–decoder are averages over as many tokens of the source as of the target"
    for names, expected in ((["gpt2", "t5-small"], True), (["gpt2", "bert-base"], False)):
        assert main(["cost", "compare", *names, "--length", "64"]) == 0
        assert (said in capsys.readouterr().out) is expected
