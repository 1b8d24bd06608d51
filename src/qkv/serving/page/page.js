"use strict";
// One screen for each task: its inputs, the request that they make, and the answer. Texts are only ever set as text.
const $ = (id) => document.getElementById(id);
const make = (tag, props = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  return node;
};
const number = (value) => (Math.abs(value) < 1 ? value.toFixed(3) : value.toFixed(2));
let models = [], chat = [], tab = "curl", abort = null;

const area = (name, label, value = "") => ({ name, label, value, kind: "textarea" });
const settings = [
  { name: "max_tokens", label: "Most new tokens", value: 64 },
  { name: "temperature", label: "Temperature", value: 0.8 },
  { name: "seed", label: "Seed", value: "" },
];
const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
const numbers = (values) => Object.fromEntries(settings.filter((s) => values[s.name] !== "").map((s) => [s.name, Number(values[s.name])]));

const TASKS = {
  "/v1/chat/completions": {
    name: "Chat", streams: true, inputs: [area("text", "Message"), ...settings], look: (v) => [v.text],
    body: (v) => ({ messages: [...chat, { role: "user", content: v.text }], ...numbers(v), stream: true }),
  },
  "/v1/completions": {
    name: "Continue", streams: true, inputs: [area("text", "Text", "The old man"), ...settings], look: (v) => [v.text],
    body: (v) => ({ prompt: v.text, ...numbers(v), stream: true }),
  },
  "/v1/translate": {
    name: "Translate", inputs: [area("text", "Texts, one a line")],
    body: (v) => ({ input: lines(v.text) }),
    show: (data) => data.data.map((one) => make("p", { className: "text", textContent: one.text })),
  },
  "/v1/classify": {
    name: "Classify", inputs: [area("text", "Texts, one a line")],
    body: (v) => ({ input: lines(v.text) }),
    show: (data, v) => data.data.flatMap((one) => [make("h2", { textContent: lines(v.text)[one.index] }), ...bars(one.probabilities)]),
  },
  "/v1/tag": {
    name: "Tag", inputs: [area("text", "Texts, one a line")],
    body: (v) => ({ input: lines(v.text) }),
    show: (data) => data.data.map((one) => make("p", {}, ...one.words.map((word, i) => tagged(word, one.tags[i])))),
  },
  "/v1/predict": {
    name: "Predict", inputs: [area("text", "Texts, one a line; for a question, a tab and its context")],
    body: (v) => ({ input: lines(v.text).map((line) => (line.includes("\t") ? line.split("\t") : line)) }),
    show: (data) => (data.data || [data]).map((one) => make("p", { className: "text", textContent: one.text })),
  },
  "/v1/embeddings": {
    name: "Embed and compare", inputs: [area("text", "Texts, one a line", "a cat on a mat\na dog in the fog\nprices rose again")],
    body: (v) => ({ input: lines(v.text) }),
    show: (data, v) => [compared(data.data.map((one) => one.embedding), lines(v.text))],
  },
  "/v1/rerank": {
    name: "Rank", inputs: [{ name: "query", label: "Query", value: "", kind: "text" }, area("text", "Documents, one a line")],
    body: (v) => ({ query: v.query, documents: lines(v.text) }), look: (v) => [v.query, ...lines(v.text)],
    show: (data) => data.results.map((one) => bar(one.document.text, one.relevance_score, number(one.relevance_score))),
  },
  "/v1/loglikelihood": {
    name: "Likelihood", inputs: [area("text", "Texts, one a line", "the cat sat on the mat")],
    body: (v) => ({ input: lines(v.text) }),
    show: (data) => data.data.map((one) => make("p", {}, ...one.tokens.map((token, i) => tagged(token, i + one.log_probs.length < one.tokens.length ? "" : number(one.log_probs[i - one.tokens.length + one.log_probs.length]))), ` perplexity ${number(one.perplexity)}`)),
  },
};

function bar(name, value, text) {
  return make("div", { className: "bar" }, make("span", { textContent: name }), make("meter", { min: 0, max: 1, value: Math.max(0, Math.min(1, value)) }), make("b", { textContent: text }));
}
const bars = (shares) => Object.entries(shares).slice(0, 8).map(([name, share]) => bar(name, share, `${(100 * share).toFixed(1)} %`));
function tagged(word, tag) {
  return tag && tag !== "O" ? make("span", { className: "tagged", textContent: word }, make("small", { textContent: tag })) : make("span", { textContent: `${word} ` });
}
function compared(vectors, texts) {
  const unit = vectors.map((v) => { const n = Math.hypot(...v); return v.map((x) => x / n); });
  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const rows = unit.map((a, i) => make("tr", {}, make("th", { textContent: texts[i] }), ...unit.map((b) => make("td", { textContent: number(dot(a, b)) }))));
  return make("div", {}, make("p", { textContent: `Cosines of ${vectors.length} vectors of ${vectors[0].length} numbers` }), make("table", {}, ...rows));
}
function boxes(data, file) {
  const holder = make("div", { className: "picture" }, make("img", { src: URL.createObjectURL(file), alt: "the picture" }));
  if (!data.size) return holder;
  const [height, width] = data.size, svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  for (const one of data.objects || []) {
    const box = one.box || one.bbox;
    if (!box) continue;
    const [left, top, right, bottom] = Array.isArray(box) ? box : [box.left, box.top, box.right, box.bottom];
    const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [key, value] of [["x", left], ["y", top], ["width", right - left], ["height", bottom - top]]) rect.setAttribute(key, value);
    svg.append(rect);
  }
  holder.append(svg);
  return holder;
}

const model = () => models.find((one) => one.id === $("model").value);
const path = () => $("task").value;
const readsFiles = () => path() === "/v1/predict" && model().reads_files;
const values = () => Object.fromEntries([...document.querySelectorAll("#inputs [name]")].map((node) => [node.name, node.value]));
const file = () => document.querySelector("#inputs input[type=file]")?.files[0];
const key = () => $("key").value.trim();
const request = () => ({ model: model().id, ...TASKS[path()].body(values()) });

function render() {
  const inputs = readsFiles() ? [{ name: "file", label: "A picture, a sound, a video or a table", kind: "file" }] : TASKS[path()].inputs;
  const row = make("div", { className: "settings" });
  const nodes = inputs.map((one) => {
    const node = make(one.kind === "textarea" ? "textarea" : "input", { name: one.name, ...(one.kind === "textarea" ? {} : { type: one.kind || "text" }) });
    if (one.kind !== "file") node.value = one.value ?? "";
    if (one.kind === undefined) node.inputMode = "decimal";
    node.addEventListener("input", code);
    node.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("form").requestSubmit(); });
    const label = make("label", { textContent: one.label }, node);
    if (one.kind === undefined) row.append(label);
    return one.kind === undefined ? null : label;
  });
  $("inputs").replaceChildren(...nodes.filter(Boolean), row);
  chat = [];
  $("talk").replaceChildren();
  $("answer").replaceChildren();
  say("");
  code();
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
function look() {
  const given = values(), inputs = readsFiles() ? [file()?.name || "photo.png"] : (TASKS[path()].look || ((v) => lines(v.text)))(given);
  const texts = inputs.filter((text) => text.trim());
  const about = ["writes look.html; name the run's directory if it is not here"];
  if (path() === "/v1/chat/completions") about.push("shows the message alone, without the chat template");
  const command = ["qkv look", quoted(model().id), ...(texts.some((text) => text.startsWith("-")) ? ["--"] : []), ...texts.map(quoted)];
  return [...about.map((line) => `# ${line}`), command.join(" ")].join("\n");
}

function code() {
  if (tab === "look") {
    $("code").textContent = look();
    return;
  }
  const url = location.origin + path(), bearer = $("keybox").hidden ? "" : "KEY";
  if (readsFiles()) {
    const name = file()?.name || "photo.png", kind = file()?.type || "image/png";
    $("code").textContent = tab === "curl"
      ? `curl '${url}?model=${encodeURIComponent(model().id)}'${bearer && ` \\\n  -H 'Authorization: Bearer ${bearer}'`} \\\n  -H 'Content-Type: ${kind}' --data-binary @'${name}'`
      : `import urllib.request\n\ndata = open(${JSON.stringify(name)}, "rb").read()\nrequest = urllib.request.Request(\n    ${JSON.stringify(`${url}?model=${encodeURIComponent(model().id)}`)},\n    data,\n    {"Content-Type": ${JSON.stringify(kind)}${bearer && `, "Authorization": "Bearer ${bearer}"`}},\n)\nprint(urllib.request.urlopen(request).read().decode())`;
    return;
  }
  const body = request();
  if (tab === "curl") {
    const text = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
    $("code").textContent = `curl ${url}${bearer && ` \\\n  -H 'Authorization: Bearer ${bearer}'`} \\\n  -d '${text}'`;
  } else {
    const sent = JSON.stringify({ ...body, ...(body.stream ? { stream: false } : {}) });
    $("code").textContent = `import json\nimport urllib.request\n\nbody = json.loads(${JSON.stringify(sent)})\nrequest = urllib.request.Request(\n    ${JSON.stringify(url)},\n    json.dumps(body).encode(),\n    {"Content-Type": "application/json"${bearer && `, "Authorization": "Bearer ${bearer}"`}},\n)\nprint(json.load(urllib.request.urlopen(request)))`;
  }
}

function say(text, bad = false) {
  $("note").textContent = text;
  $("note").className = bad ? "bad" : "";
}

async function ask(event) {
  event.preventDefault();
  if (abort) return;
  const headers = { "Content-Type": "application/json" }, task = TASKS[path()], given = values();
  if (key()) headers.Authorization = `Bearer ${key()}`;
  let url = path(), body;
  if (readsFiles()) {
    if (!file()) return say("Choose a file first.", true);
    [url, body, headers["Content-Type"]] = [`${path()}?model=${encodeURIComponent(model().id)}`, file(), file().type];
  } else {
    body = JSON.stringify(request());
  }
  abort = new AbortController();
  $("stop").hidden = !task.streams;
  $("send").disabled = true;
  say("…");
  const began = performance.now();
  try {
    const answer = await fetch(url, { method: "POST", headers, body, signal: abort.signal });
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    if (task.streams) {
      await stream(answer, given);
    } else {
      const data = await answer.json();
      const shown = readsFiles() ? [boxes(data, file()), make("p", { className: "text", textContent: data.text })] : task.show(data, given);
      $("answer").replaceChildren(...shown);
    }
    say(`${((performance.now() - began) / 1000).toFixed(2)} s`);
  } catch (error) {
    say(error.name === "AbortError" ? "stopped" : error.message, error.name !== "AbortError");
  } finally {
    abort = null;
    $("send").disabled = false;
    $("stop").hidden = true;
  }
}

async function stream(answer, given) {
  const talks = path() === "/v1/chat/completions";
  const into = make("div", { className: talks ? "said" : "text", textContent: talks ? "" : given.text });
  if (talks) {
    $("talk").append(make("div", { className: "said user", textContent: given.text }), into);
    chat.push({ role: "user", content: given.text });
    document.querySelector("#inputs textarea").value = "";
  } else {
    $("answer").replaceChildren(into);
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const events = (held + value).split("\n\n");
      held = events.pop();
      for (const each of events) {
        if (each === "data: [DONE]") continue;
        const data = JSON.parse(each.slice(6));
        if (data.error) throw new Error(data.error.message);
        const choice = data.choices[0];
        into.append(choice?.delta?.content ?? choice?.text ?? "");
      }
    }
  } finally {
    if (talks) chat.push({ role: "assistant", content: into.textContent });
    code();
  }
}

async function begin() {
  const headers = key() ? { Authorization: `Bearer ${key()}` } : {};
  const answer = await fetch("/v1/models", { headers });
  if (answer.status === 401) {
    $("keybox").hidden = false;
    return say("This server needs a key.", true);
  }
  models = (await answer.json()).data.filter((one) => one.endpoints.some((each) => TASKS[each]));
  if (!models.length) return say("No run here has a task for this page.", true);
  $("model").replaceChildren(...models.map((one) => make("option", { value: one.id, textContent: one.id })));
  choose();
}

function choose() {
  const known = Object.keys(TASKS).filter((each) => model().endpoints.includes(each));
  $("task").replaceChildren(...known.map((each) => make("option", { value: each, textContent: TASKS[each].name })));
  render();
}

$("form").addEventListener("submit", ask);
$("stop").addEventListener("click", () => abort?.abort());
$("model").addEventListener("change", choose);
$("task").addEventListener("change", render);
$("key").addEventListener("change", begin);
$("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText($("code").textContent);
  $("copy").textContent = "Copied";
  setTimeout(() => { $("copy").textContent = "Copy"; }, 1500);
});
$("tabs").addEventListener("click", (event) => {
  tab = event.target.dataset.tab || tab;
  for (const button of $("tabs").children) button.className = button.dataset.tab === tab ? "on" : "";
  code();
});
begin().catch(() => say("The server does not answer.", true));
