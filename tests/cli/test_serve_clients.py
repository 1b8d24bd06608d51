"""`qkv serve` as a real process, asked by clients that others wrote. Those that are not installed are skipped.

npm's openai is found by NODE_PATH: `npm install openai`, then NODE_PATH=…/node_modules. The others are Python packages:
langchain-openai and lm-eval.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import run_tiny
from server_process import Process

import qkv
from qkv.cli import main
from qkv.runs.inference.chat import chat
from qkv.runs.inference.run import Run

pytestmark = pytest.mark.slow

GREEDY: dict[str, Any] = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
NPM = """
const OpenAI = require("openai");
const [url, run] = process.argv.slice(1);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
(async () => {
  const found = { models: (await client.models.list()).data.map((one) => one.id) };
  const ask = { model: "small-english", prompt: "The old man", max_tokens: 12, temperature: 0 };
  found.text = (await client.completions.create(ask)).choices[0].text;
  found.streamed = "";
  for await (const part of await client.completions.create({ ...ask, stream: true })) found.streamed += part.choices[0].text;
  const messages = [{ role: "user", content: "1 + 1?" }];
  found.reply = (await client.chat.completions.create({ model: run, messages })).choices[0].message.content;
  found.response = (await client.responses.create({ model: run, input: "1 + 1?" })).output_text;
  found.vector = (await client.embeddings.create({ model: "small-english", input: "The old man" })).data[0].embedding;
  try { await client.completions.create({ ...ask, model: "gpt-4" }); }
  catch (error) { found.error = [error.status, error.message]; }
  console.log(JSON.stringify(found));
})();
"""


@pytest.fixture(scope="module")
def assistant(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_tiny.assistant(tmp_path_factory.mktemp("clients"))


@pytest.fixture(scope="module")
def english() -> Run:
    return qkv.load("small-english", device="cpu")


@pytest.fixture(scope="module")
def server(assistant: Path) -> Iterator[Process]:
    process = Process("small-english", str(assistant))
    yield process
    assert "Traceback" not in process.stop()


def test_npms_openai(server: Process, english: Run, assistant: Path) -> None:
    node = shutil.which("node")
    if node is None or subprocess.run([node, "-e", "require.resolve('openai')"], capture_output=True).returncode:
        pytest.skip("npm's openai is not found: npm install openai, and set NODE_PATH to its node_modules")
    command = [node, "-e", NPM, "--", server.url, assistant.name]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    found, run = json.loads(answer), qkv.load(assistant, device="cpu")
    want = english.generate("The old man", max_new_tokens=12, **GREEDY)
    assert found["text"] == found["streamed"] == want
    assert found["reply"] == found["response"] == chat(run, [{"role": "user", "content": "1 + 1?"}])
    assert found["vector"] == pytest.approx(english.embed("The old man").tolist(), abs=1e-6)
    assert found["models"] == ["small-english", assistant.name]
    assert found["error"][0] == 404 and "gpt-4" in found["error"][1]


def test_langchains_openai(server: Process, english: Run, assistant: Path) -> None:
    library = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
    about: dict[str, Any] = {"base_url": f"{server.url}/v1", "api_key": "none", "max_retries": 0}
    model = library.OpenAI(model="small-english", max_tokens=12, temperature=0, **about)
    want = english.generate("The old man", max_new_tokens=12, **GREEDY)
    assert model.invoke("The old man") == want == "".join(model.stream("The old man"))
    talks = library.ChatOpenAI(model=assistant.name, temperature=0, **about)
    run = qkv.load(assistant, device="cpu")
    wanted = chat(run, [{"role": "user", "content": "1 + 1?"}], **GREEDY)
    assert talks.invoke("1 + 1?").content == wanted == "".join(part.content for part in talks.stream("1 + 1?"))
    embeds = library.OpenAIEmbeddings(model="small-english", check_embedding_ctx_length=False, **about)
    assert embeds.embed_query("The old man") == pytest.approx(english.embed("The old man").tolist(), abs=1e-6)


def test_lm_evals_local_completions(trained_lm: Path, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp", reason="lm-eval's clients need aiohttp: pip install 'lm-eval[api]'")
    models = pytest.importorskip("lm_eval.models.openai_completions", reason="lm-eval is not installed")
    from lm_eval.api.instance import Instance

    run, folder = qkv.load(trained_lm, device="cpu"), tmp_path / "hub"
    assert main(["convert", str(trained_lm), str(folder), "--to", "hub"]) == 0
    server = Process(str(folder))
    model = models.LocalCompletionsAPI(
        model="hub", base_url=f"{server.url}/v1/completions", tokenizer=str(folder), tokenizer_backend="huggingface"
    )
    pairs = [("the cat is", " 3 years old"), ("the dog is", " 40"), ("the", " cat")]

    def asked(kind: str, arguments: list[tuple[Any, ...]]) -> list[Any]:
        return [Instance(kind, {}, one, i) for i, one in enumerate(arguments)]

    found = model.loglikelihood(asked("loglikelihood", pairs), disable_tqdm=True)
    for (context, target), (likelihood, is_greedy) in zip(pairs, found, strict=True):
        count = len(run.encode(context + target)) - len(run.encode(context))
        assert likelihood == pytest.approx(sum(run.score(context + target).log_probs[-count:]), abs=1e-4)
        greedy = run.generate(context, max_new_tokens=count, min_new_tokens=count, **GREEDY)
        assert is_greedy == (greedy == target)
    until = {"until": ["\n"], "max_gen_toks": 4, "temperature": 0.0}
    (text,) = model.generate_until(asked("generate_until", [("the cat", until)]), disable_tqdm=True)
    assert text == run.generate("the cat", max_new_tokens=4, **GREEDY).split("\n")[0]
    server.stop()
