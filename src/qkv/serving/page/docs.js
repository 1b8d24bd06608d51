"use strict";
// The endpoints of /openapi.json: fields, an example that can be sent, and the schema of the answer. Texts are only ever set as text.
const $ = (id) => document.getElementById(id);
const make = (tag, props = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  return node;
};
const key = () => $("key").value.trim();
const headers = () => (key() ? { Authorization: `Bearer ${key()}` } : {});
const JSON_TYPE = "application/json";

function kind(schema) {
  if (schema.anyOf) return schema.anyOf.map(kind).filter((one) => one !== "null").join(" or ");
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" or ");
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.type === "array") return `list of ${kind(schema.items || {})}`;
  const bounds = [["minimum", "≥"], ["exclusiveMinimum", ">"], ["maximum", "≤"], ["maxItems", "at most"]].filter(([name]) => name in schema).map(([name, sign]) => `${sign} ${schema[name]}`);
  return [schema.type || "any", ...bounds].join(" ");
}

function table(schema) {
  const rows = Object.entries(schema.properties || {}).map(([name, one]) => make("tr", {},
    make("th", { textContent: name }),
    make("td", { textContent: kind(one) }),
    make("td", { textContent: (schema.required || []).includes(name) ? "required" : one.default == null ? "" : `default ${JSON.stringify(one.default)}` })));
  return make("div", { className: "wide" }, make("table", { className: "fields" }, ...rows));
}

function command(path, method, example) {
  const bearer = $("keybox").hidden ? "" : " \\\n  -H 'Authorization: Bearer KEY'";
  if (method === "get") return `curl ${location.origin}${path}${bearer}`;
  return `curl ${location.origin}${path}${bearer} \\\n  -d '${JSON.stringify(example, null, 1).replaceAll("'", "'\\''")}'`;
}

async function send(path, method, example, into) {
  into.hidden = false;
  into.textContent = "…";
  try {
    const body = method === "get" ? undefined : JSON.stringify(example);
    const answer = await fetch(path, { method: method.toUpperCase(), headers: { ...headers(), "Content-Type": JSON_TYPE }, body });
    const text = await answer.text();
    into.textContent = `${answer.status}\n${answer.headers.get("content-type").startsWith(JSON_TYPE) ? JSON.stringify(JSON.parse(text), null, 1) : text}`;
  } catch {
    into.textContent = "The server does not answer.";
  }
}

function endpoint(path, method, about) {
  const node = make("details", { className: "endpoint", id: path, open: location.hash === `#${path}` },
    make("summary", {}, make("b", { textContent: method.toUpperCase() }), make("code", { textContent: path }), make("span", { textContent: about.summary })));
  const content = about.requestBody?.content, models = about["x-models"];
  if (models) node.append(make("p", { textContent: models.length ? `Runs: ${models.join(", ")}` : "No run here has it." }));
  if (content) node.append(make("h2", { textContent: "Fields" }), table(content[JSON_TYPE].schema));
  const files = Object.keys(content || {}).filter((one) => one !== JSON_TYPE);
  if (files.length) node.append(make("p", { textContent: `Or the file is the body: ${files.join(", ")}.` }));
  const example = content?.[JSON_TYPE].example;
  if (example || method === "get") {
    const into = make("pre", { hidden: true }), button = make("button", { textContent: "Send" });
    button.addEventListener("click", () => send(path, method, example, into));
    node.append(make("div", { className: "row" }, make("h2", { textContent: "Example" }), button), make("pre", { textContent: command(path, method, example) }), into);
  }
  const answer = Object.values(about.responses[200].content)[0].schema;
  if (answer.type === "object") node.append(make("h2", { textContent: "Answer" }), table(answer));
  return node;
}

async function begin() {
  const answer = await fetch("/openapi.json", { headers: headers() });
  if (answer.status === 401) {
    $("keybox").hidden = false;
    $("note").textContent = "This server needs a key.";
    return;
  }
  $("note").textContent = "";
  const paths = Object.entries((await answer.json()).paths);
  $("list").replaceChildren(...paths.map(([path, methods]) => endpoint(path, ...Object.entries(methods)[0])));
}

$("key").addEventListener("change", begin);
begin().catch(() => { $("note").textContent = "The server does not answer."; });
