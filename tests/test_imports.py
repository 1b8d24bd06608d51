"""What a process imports: nothing by itself, and no more than it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "qkv"


def module_names() -> list[str]:
    """The dotted name of every module, without `__main__`, which runs the command line."""
    paths = (path.relative_to(SOURCE.parent).with_suffix("") for path in sorted(SOURCE.rglob("*.py")))
    return [".".join(path.parts).removesuffix(".__init__") for path in paths if path.name != "__main__"]


QUIETLY = """
import importlib, sys, threading
import torch

def refuse(event, args):
    if event in ("socket.connect", "subprocess.Popen", "os.system"):
        sys.exit(f"importing did {event} {args}")

sys.addaudithook(refuse)
state, threads = torch.random.get_rng_state(), threading.active_count()
for name in sys.argv[1:]:
    importlib.import_module(name)
assert torch.equal(state, torch.random.get_rng_state()), "importing drew random numbers"
assert torch.get_default_dtype() == torch.float32 and torch.is_grad_enabled(), "importing changed PyTorch's settings"
assert threading.active_count() == threads, "importing started threads"
"""


def test_importing_only_defines():
    done = subprocess.run([sys.executable, "-c", QUIETLY, *module_names()], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "", "importing printed something"


WITHOUT_COMPILING = """
import sys, torch, qkv
model = qkv.build(qkv.preset("gpt2", n_layers=1, d_model=64, n_heads=4, max_positions=32))
model.generate(torch.zeros(1, 4, dtype=torch.long), max_new_tokens=2)
print({"torch._dynamo", "sympy", "qkv.core.synonyms"} & set(sys.modules))
"""


def test_a_model_is_built_and_decodes_without_the_graph_compiler() -> None:
    """`torch._dynamo` and sympy take a second to load; a decorator of `torch.compiler` or a dispatch mode loads them."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_COMPILING], capture_output=True, text=True, timeout=400)
    assert done.stdout.strip() == "set()", done.stderr[-2000:]


TRAINS = """
import sys
from pathlib import Path
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train
small = ["data.train=64", "data.validation=8", "data.test=8", "model.d_model=16", "model.d_ff=16", "model.n_layers=1"]
train(Recipe.load("reverse", [*small, "training.max_steps=2", "training.compile=false"]), Path(sys.argv[1]), device="cpu")
print(*sys.modules)
"""
NOT_FOR_TRAINING = (
    *(
        "torch._dynamo",
        "sympy",
        "qkv.runs.tasks.image_text_retrieval",
        "qkv.runs.tasks.captioning",
        "qkv.io.families.clip",
    ),
    *(
        "qkv.generation.speculative",
        "qkv.nn.quantization.methods.gptq",
        "qkv.data.media.video",
        "qkv.data.vectors.word_vectors",
    ),
    *("qkv.runs.inference.reading.processors", "qkv.runs.inference.look.joint", "qkv.io.hub.peft"),
)
MODULES_OF_A_TRAINING = 540  # at most


def test_a_training_imports_what_it_needs(tmp_path: Path) -> None:
    """The graph compiler is loaded by custom operators and PyTorch's optimizers at their first call."""
    code = [sys.executable, "-c", TRAINS, str(tmp_path / "run")]
    done = subprocess.run(code, capture_output=True, text=True, timeout=400)
    *_, imported = done.stdout.strip().splitlines() or [""]
    names = set(imported.split())
    assert "qkv.training.loop" in names, done.stderr[-2000:]
    assert not names.intersection(NOT_FOR_TRAINING)
    assert len([name for name in names if name.startswith("qkv.")]) < MODULES_OF_A_TRAINING


FIRST_TOKEN = """
import contextlib, io, sys, torch
from qkv.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    assert main(["generate", sys.argv[1], "a b", "--max-new-tokens", "1", "--device", "cpu"]) == 0
from qkv.core.graphs import Operator
assert len(Operator.waiting) > 8, "custom operators were registered, which takes milliseconds each"
print(*sys.modules)
"""
SLOW_TO_IMPORT = (
    "jinja2",
    "sympy",
    "torch._dynamo",
    "yaml",
    "filelock",
    "numpy.random",
    "qkv.data.tokenizers.training",
)
NOT_FOR_GENERATING = (
    *("runs.tasks", "runs.train", "data.readers", "data.batching", "training.optimizers", "look"),
    *("lab.studies", "lab.costs", "learn.doctor", "learn.explain", "runs.inference.tables"),
    *("nn.pruning", "core.metrics"),
)


def test_generating_from_a_hub_directory_imports_only_what_it_needs(tmp_path: Path) -> None:
    """`python -m bench start` times this: recipes, tasks and data once took a third of the time to the first token."""
    import qkv
    from qkv.data.tokenizers.tokenizer import train

    model = qkv.build(qkv.preset("gpt2", n_layers=1, d_model=16, n_heads=2, vocab_size=64, max_positions=16), seed=0)
    tokenizer = train("char", ["a b"])
    qkv.Run(model, tokenizer).save(tmp_path, to="hub")
    done = subprocess.run(
        [sys.executable, "-c", FIRST_TOKEN, tmp_path], capture_output=True, text=True, timeout=400, check=True
    )
    found = set(done.stdout.split())
    unwanted = {*SLOW_TO_IMPORT, "qkv.runs.recipes.recipe", *(f"qkv.{name}" for name in NOT_FOR_GENERATING)}
    families = {name for name in found if name.startswith("qkv.io.families.")}
    assert not unwanted & found and families <= {
        "qkv.io.families.gpt2",
        "qkv.io.families.classes",
        "qkv.io.families.places",
    }
    assert len([name for name in found if name.startswith("qkv.")]) < 310
