"""Two hosts with their own addresses, and docs/scale.md's files for Slurm and Kubernetes, as far as one machine can."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch.distributed.run import get_args_parser

from qkv.cli import main

pytestmark = pytest.mark.xdist_group("ranks")
PAGE = (Path(__file__).parents[3] / "docs" / "scale.md").read_text()
QUICK = (
    *("model.d_model=16", "model.n_heads=2", "model.n_layers=1", "batching.tokens=300", "training.precision=fp32"),
    *("model.dropout=0", "training.max_steps=4", "training.eval_every=null", "evaluation.test_examples=8"),
)


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Two network namespaces joined by a cable, with the addresses 10.77.0.1 and 10.77.0.2 at their interfaces eth0."""
    names = [f"qkv-{os.getpid()}-{i}" for i in range(2)]

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True, text=True)

    made = []
    try:
        for name in names:
            ip("netns", "add", name)
            made.append(name)
        ip("link", "add", "eth0", "netns", names[0], "type", "veth", "peer", "name", "eth0", "netns", names[1])
        for i, name in enumerate(names, 1):
            ip("-n", name, "addr", "add", f"10.77.0.{i}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"this machine allows no network namespaces: {getattr(error, 'stderr', None) or error}")
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False)


@pytest.mark.slow
def test_two_hosts_meet_by_torchrun_and_train_as_one_process_does(tmp_path: Path, hosts: list[str]) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    launcher += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "10.77.0.1:29500", "--rdzv-id", "two-hosts"]
    command = ["-m", "qkv", "train", "reverse", *QUICK, "scale.shard=2", "--out", str(tmp_path / "two")]

    def host(i: int) -> list[str]:
        # torchrun would take its host's name, which has the address 127.0.0.1 in both, to see that 10.77.0.1 is its own
        return ["--local-addr", f"10.77.0.{i}", "--rdzv-conf", f"is_host={int(i == 1)}"]

    processes = [
        subprocess.Popen(
            ["ip", "netns", "exec", name, *launcher, *host(i), *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        for i, name in enumerate(hosts, 1)
    ]
    outputs = [process.communicate(timeout=600)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert "Training reverse" in outputs[0] and "Training reverse" not in outputs[1]
    assert main(["train", "reverse", *QUICK, "--out", str(tmp_path / "one")]) == 0
    two, one = (load_file(tmp_path / name / "model.safetensors") for name in ("two", "one"))
    for name, tensor in one.items():
        if not name.endswith(".k.bias"):  # its gradient is 0 up to rounding
            torch.testing.assert_close(two[name], tensor, rtol=1e-3, atol=1e-4, msg=name)


def block(kind: str, beginning: str) -> str:
    """The code block of the page that begins so."""
    found: list[str] = re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)
    return next(text for text in found if text.startswith(beginning))


def test_the_slurm_script_gives_every_node_the_same_rendezvous(tmp_path: Path) -> None:
    """`srun`, `scontrol` and `torchrun` are stand-ins: srun runs the command once for each of two nodes."""
    script = tmp_path / "job.sh"
    script.write_text(block("bash", "#!/bin/bash"))
    subprocess.run(["bash", "-n", script], check=True)
    for name, text in {
        "srun": 'for node in 0 1; do SLURM_NODEID=$node "$@"; done',
        "scontrol": 'test "$1 $2 $3" = "show hostnames node[3-4]" && printf "node3\\nnode4\\n"',
        "torchrun": 'printf "%s\\n" "$@" >> "$TOLD"; echo >> "$TOLD"',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    told = tmp_path / "told"
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TOLD": str(told), "SCRATCH": "/scratch"}
    environment |= {"SLURM_JOB_NODELIST": "node[3-4]", "SLURM_NNODES": "2"}
    subprocess.run(["bash", "-eu", script], check=True, env=environment)
    first, second = (call.split("\n") for call in told.read_text().strip().split("\n\n"))
    assert first == second
    given = get_args_parser().parse_args(first)
    assert (given.nnodes, given.nproc_per_node) == ("2", "4")
    assert (given.rdzv_backend, given.rdzv_endpoint) == ("c10d", "node3:29500")
    assert given.module and given.training_script == "qkv" and given.training_script_args[0] == "train"
    assert re.search(r"#SBATCH --nodes=2 --ntasks-per-node=1 ", script.read_text())


def test_the_pytorchjob_has_what_its_schema_asks_for() -> None:
    job = yaml.safe_load(block("yaml", "apiVersion"))
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob") and job["metadata"]["name"]
    spec = job["spec"]
    assert spec["nprocPerNode"] == "4" and set(spec["pytorchReplicaSpecs"]) <= {"Master", "Worker"}
    for replica in spec["pytorchReplicaSpecs"].values():
        assert isinstance(replica["replicas"], int) and replica["restartPolicy"] in (
            *("Always", "OnFailure", "Never", "ExitCode"),
        )
        pod = replica["template"]["spec"]
        (container,) = pod["containers"]
        assert container["name"] == "pytorch", "the operator sets the variables of the container of this name"
        assert all(isinstance(word, str) for word in container["command"])
        launcher, *words = container["command"]
        given = get_args_parser().parse_args(words)
        assert launcher == "torchrun" and given.training_script_args[:2] == ["train", "/data/recipe.yaml"]
        assert {mount["name"] for mount in container["volumeMounts"]} <= {volume["name"] for volume in pod["volumes"]}
