"use strict";
(() => {
  // ---- elements: text is always set as text, never as markup ----
  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (name === "class") element.className = value;
      else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
    }
    for (const child of children.flat()) {
      if (child !== null && child !== undefined && child !== "") element.append(child);
    }
    return element;
  }
  const label = (content) => make("bdi", {}, content);
  const apart = (text) => `\u2068${text}\u2069`; // keeps its own direction inside a sentence
  // Parts with two spaces between them, such as tokens with their probabilities: each keeps its own direction, on one line.
  const part = (content) => make("bdi", { class: "part" }, content);
  const parts = (text) => (text.includes("  ") ? text.split("  ").flatMap((one, i) => (i ? ["  ", part(one)] : [part(one)])) : [text]);
  const app = document.getElementById("app");
  const status = document.getElementById("status");
  const say = (text) => { status.textContent = text; };
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const live = document.body.dataset.live ? JSON.parse(document.body.dataset.live) : null; // what the form begins with
  const HEADS = 8;
  const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3], [1, 5], [12, 4], [5, 2, 1, 2], [3, 6]];
  const digits = (value, count = 3) => (Math.abs(value) < 0.0005 && value !== 0 ? value.toExponential(1) : value.toFixed(count));

  // ---- data ----
  let data = JSON.parse(document.getElementById("data").textContent);
  let bytes = new Map();
  function array(index) {
    if (!bytes.has(index)) bytes.set(index, Uint8Array.from(atob(data.arrays[index]), (c) => c.charCodeAt(0)));
    return bytes.get(index);
  }
  const floats = (index) => new Float32Array(array(index).slice().buffer);
  function half(bits) {
    const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
    if (exponent === 0) return sign * 2 ** -14 * (fraction / 1024);
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * 2 ** (exponent - 15) * (1 + fraction / 1024);
  }
  const halves = (index) => Array.from(new Uint16Array(array(index).slice().buffer), half);

  // ---- state ----
  const state = { changes: live ? live.changes : [], view: 0, group: 0, layer: 0, heads: [0], mode: null, scaled: false, tokens: [], side: "query", pair: null };
  const view = () => data.views[state.view];
  const group = () => view().groups[state.group];
  const layer = () => group().layers[state.layer];
  const axis = (name) => view().axes[name];
  const query = () => axis(group().query);
  const key = () => axis(group().key);
  const rowLabels = () => query().rows.map((i) => query().labels[query().shown.indexOf(i)]);
  const columnLabels = () => key().labels;
  const hasPicture = () => key().picture && key().grid;
  const isSound = () => key().name.startsWith("sound"); // whose first row, the lowest pitch, is drawn at the bottom

  function weightsOf(someLayer, place, scaled) {
    const T = query().rows.length, S = key().shown.length;
    const levels = array(someLayer.weights), largest = floats(someLayer.largest), out = new Float32Array(T * S);
    const norms = scaled && someLayer.norms !== undefined ? floats(someLayer.norms) : null;
    for (let t = 0; t < T; t++) {
      const top = largest[place * T + t];
      for (let s = 0; s < S; s++) {
        const i = t * S + s;
        out[i] = (levels[place * T * S + i] / 255) * top * (norms ? norms[place * S + s] : 1);
      }
    }
    return out;
  }
  function excluded(someLayer, place) {
    if (someLayer.mask === null) return null;
    const T = query().rows.length, S = key().shown.length, packed = array(someLayer.mask);
    const first = someLayer.maskPerHead ? place * T * S : 0;
    return (t, s) => { const i = first + t * S + s; return !((packed[i >> 3] >> (7 - (i & 7))) & 1); };
  }

  // ---- page ----
  function render() {
    app.replaceChildren(head(), ...(view().groups.length ? [attention()] : []), ...view().panels.map(panel));
    draw();
  }
  function head() {
    const views = data.views.length < 2 ? null : make("div", { class: "bar", role: "tablist", "aria-label": "inputs" },
      data.views.map((one, i) => make("button", { role: "tab", "aria-selected": i === state.view, onclick: () => { openView(i); render(); } },
        label(one.text.length > 40 ? one.text.slice(0, 39) + "…" : one.text))));
    return make("div", {}, views, live ? form() : null, live || !view().text ? null : make("p", { class: "input", dir: "auto" }, view().text),
      view().facts.length ? make("dl", { class: "facts" }, view().facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", { dir: "auto", class: value ? "" : "nothing" }, parts(value || "(empty)"))])) : null,
      view().notes.length ? make("ul", { class: "notes" }, view().notes.map((note) => make("li", {}, note + "."))) : null);
  }
  function openView(index) {
    openGroup(Math.max(0, data.views[index].groups.findIndex((one) => one.name === data.kind)), index);
  }
  function openGroup(index, input = state.view) {
    Object.assign(state, { view: input, group: index });
    if (!view().groups.length) return;
    const layers = group().layers, wanted = data.head;
    const at = wanted ? layers.findIndex((one) => one.index === wanted[0]) : -1;
    state.layer = at >= 0 ? at : 0;
    const place = wanted ? layer().heads.indexOf(wanted[1]) : -1;
    state.heads = [place >= 0 ? place : 0];
    if (!wanted && layer().heads.length > 1 && layer().heads.length <= HEADS) state.heads = layer().heads.map((_, i) => i);
    state.mode = hasPicture() ? "picture" : "lines";
    const focus = view().focus;
    state.side = focus[group().query] ? "query" : "key";
    state.tokens = focus[group().query] || focus[group().key] || (hasPicture() ? [0] : []);
    if (!focus[group().query] && !focus[group().key]) state.side = "query";
    const row = state.side === "query" && state.tokens.length ? state.tokens[0] : rowLabels().length - 1;
    state.pair = [row, strongest(row)];
  }
  function strongest(row) {
    const S = key().shown.length, weights = weightsOf(layer(), state.heads[0], false);
    let best = 0;
    for (let s = 1; s < S; s++) if (weights[row * S + s] > weights[row * S + best]) best = s;
    return best;
  }
  const what = () => (group().name === "cross" ? "cross-attention: the output's tokens attend to the source" : group().query === group().key ? `self-attention of the ${group().key}'s tokens` : "");

  function attention() {
    const groups = view().groups;
    return make("section", { id: "attention" }, make("h2", {}, "Attention"),
      groups.length > 1 ? make("div", { class: "bar", role: "tablist", "aria-label": "kinds of attention" }, groups.map((one, i) =>
        make("button", { role: "tab", "aria-selected": i === state.group, onclick: () => { openGroup(i); render(); } }, one.name))) : null,
      make("p", { class: "legend" }, group().note || what(),
        make("span", {}, make("i", {}), "weight 0"), make("span", {}, make("i", { class: "most" }), "largest of its row, in thumbnails"),
        make("span", {}, make("i", { class: "out" }), "not computed")),
      modelView(), make("div", { id: "head" }), make("div", { id: "score" }));
  }

  // ---- model view: a thumbnail for every layer and head ----
  function modelView() {
    const layers = group().layers, most = Math.max(...layers.map((one) => one.heads.length));
    if (layers.length * most < 2) return null;
    const size = window.innerWidth < 560 ? 40 : most > 8 ? 52 : 64;
    const headNumbers = [...new Set(layers.flatMap((one) => one.heads))].sort((a, b) => a - b);
    const grid = make("div", { class: "model", role: "group", "aria-label": "layers down, heads across; arrow keys move" });
    grid.style.gridTemplateColumns = `max-content repeat(${headNumbers.length}, max-content)`;
    grid.append(make("span", { class: "axis" }, "layer \\ head"), ...headNumbers.map((h) => make("span", { class: "axis" }, String(h))));
    layers.forEach((one, row) => {
      grid.append(make("span", { class: "axis" }, String(one.index)));
      headNumbers.forEach((number) => {
        const place = one.heads.indexOf(number);
        if (place < 0) { grid.append(make("span", {})); return; }
        const canvas = make("canvas", { "aria-hidden": "true" });
        const on = row === state.layer && state.heads.includes(place);
        const button = make("button", {
          "aria-pressed": on, "aria-label": `layer ${one.index}, head ${number}`, "data-at": `${row},${place}`,
          tabindex: row === state.layer && place === state.heads[0] ? 0 : -1,
          onclick: (event) => choose(row, place, event.shiftKey || event.ctrlKey || event.metaKey),
          onmouseenter: () => say(`layer ${one.index}, head ${number}: click to look; Shift-click overlays heads of a layer`),
          onkeydown: (event) => step(event, row, place),
        }, canvas);
        thumbnail(canvas, one, place, size);
        grid.append(button);
      });
    });
    return make("div", { class: "scroll" }, grid);
  }
  function thumbnail(canvas, one, place, size) {
    let T = query().rows.length, S = key().shown.length, weights = weightsOf(one, place, false), out = excluded(one, place);
    const grid = hasPicture() && !out ? key().grid : null;
    if (grid) { // where on the picture the queries look, on average
      const mean = new Float32Array(grid.rows * grid.columns);
      for (let t = 0; t < T; t++) for (let p = 0; p < mean.length; p++) mean[p] += weights[t * S + grid.before + p];
      const most = Math.max(...mean);
      weights = mean.map((value) => value / most);
      T = grid.rows; S = grid.columns;
    }
    canvas.classList.toggle("upward", Boolean(grid) && isSound());
    canvas.width = S; canvas.height = T;
    canvas.style.width = `${Math.round(size * Math.min(1, S / T) + 0.5)}px`;
    canvas.style.height = `${Math.max(14, Math.round(size * Math.min(1, T / S) + 0.5))}px`;
    const context = canvas.getContext("2d"), image = context.createImageData(S, T);
    const ink = rgb(color("--heat")), gone = rgb(color("--out"));
    for (let t = 0; t < T; t++) {
      let top = grid ? 1 : 1e-9;
      for (let s = 0; s < S && !grid; s++) top = Math.max(top, weights[t * S + s]);
      for (let s = 0; s < S; s++) {
        const i = (t * S + s) * 4, hidden = out && out(t, s);
        const share = hidden ? ((t + s) % 3 ? 0 : 0.55) : weights[t * S + s] / top;
        image.data.set([...(hidden ? gone : ink), Math.round(255 * share)], i);
      }
    }
    context.putImageData(image, 0, 0);
  }
  function rgb(text) {
    const hex = text.replace("#", "");
    return [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16));
  }
  function choose(row, place, more) {
    if (more && row === state.layer) {
      const at = state.heads.indexOf(place);
      if (at < 0 && state.heads.length < HEADS) state.heads.push(place);
      else if (at >= 0 && state.heads.length > 1) state.heads.splice(at, 1);
    } else {
      state.layer = row;
      state.heads = [place];
    }
    refresh();
  }
  function refresh() {
    for (const button of app.querySelectorAll(".model button")) {
      const [row, place] = button.dataset.at.split(",").map(Number);
      button.setAttribute("aria-pressed", String(row === state.layer && state.heads.includes(place)));
      button.tabIndex = row === state.layer && place === state.heads[0] ? 0 : -1;
    }
    draw();
  }
  function step(event, row, place) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    const next = app.querySelector(`.model button[data-at="${row + move[0]},${place + move[1]}"]`);
    if (next) { choose(row + move[0], place + move[1], event.shiftKey && !move[0]); next.focus(); }
  }

  // ---- head view ----
  function draw() {
    const holder = document.getElementById("head");
    if (!holder) return;
    const one = layer(), several = one.heads.length > 1;
    const modes = hasPicture() ? ["picture", "map"] : ["lines", "map"];
    const names = { lines: "lines", map: "heat map", picture: "on the picture" };
    const bar = make("div", { class: "bar", role: "group", "aria-label": "drawing" },
      modes.map((mode) => make("button", { "aria-pressed": state.mode === mode, onclick: () => { state.mode = mode; draw(); } }, names[mode])),
      one.norms !== undefined ? make("button", { "aria-pressed": state.scaled, title: "weight × norm of the value behind the output projection (Kobayashi et al. 2020)",
        onclick: () => { state.scaled = !state.scaled; draw(); } }, "times value norm") : null,
      state.tokens.length && state.mode === "lines" ? make("button", { onclick: () => { state.tokens = []; draw(); } }, "all words") : null);
    const chips = several ? make("div", { class: "bar", role: "group", "aria-label": "heads overlaid" }, make("span", {}, `heads of layer ${one.index}`),
      one.heads.map((number, place) => {
        const at = state.heads.indexOf(place);
        return make("button", { class: "chip", "aria-pressed": at >= 0, onclick: () => choose(state.layer, place, true) }, at >= 0 ? swatch(at) : null, String(number));
      })) : null;
    const drawing = { lines, map, picture: pictures }[state.mode]();
    holder.replaceChildren(make("h3", {}, title()), chips || "", ...(live ? [changeBar()] : []), bar, drawing);
    if (drawing.after) drawing.after();
    drawScore();
    toAddress();
  }
  function title() {
    const one = layer(), numbers = state.heads.map((place) => one.heads[place]);
    return one.heads.length < 2 ? `layer ${one.index}` : `layer ${one.index}, ${numbers.length > 1 ? "heads" : "head"} ${numbers.join(", ")}`;
  }
  function swatch(at) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 26 10");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    for (const [name, value] of Object.entries({ x1: 0, x2: 26, y1: 5, y2: 5, "stroke-width": 4, "stroke-dasharray": DASHES[at].join(" ") })) line.setAttribute(name, value);
    line.style.stroke = `var(--h${at})`;
    svg.append(line);
    return svg;
  }
  const current = () => state.heads.map((place) => weightsOf(layer(), place, state.scaled));

  function lines() {
    const rows = rowLabels(), columns = columnLabels(), S = columns.length, heads = current();
    const top = heads.map((weights) => rows.map((_, t) => Math.max(1e-9, ...weights.subarray(t * S, (t + 1) * S))));
    const mean = heads.length > 1 ? `mean of ${heads.length} heads` : "";
    const writes = query().writes, canvas = make("canvas", { "aria-hidden": "true" });
    let hover = null;
    const buttons = { query: [], key: [] };
    const shown = () => hover || (state.tokens.length ? { side: state.side, tokens: state.tokens } : null);
    function value(t, s) { return heads.reduce((sum, weights) => sum + weights[t * S + s], 0) / heads.length; }
    function token(side, i, text) {
      const next = side === "query" && writes.length && writes[i] ? make("small", { title: "the likeliest next token" }, "→ ", label(writes[i])) : null;
      const number = make("span", { class: "w", title: mean || (state.scaled ? "product" : "weight") });
      const inside = side === "query" ? [number, next, label(text)] : [label(text), number];
      const button = make("button", { class: "token", tabindex: i ? -1 : 0, "aria-pressed": false,
        onmouseenter: () => { hover = { side, tokens: [i] }; paint(); tell(side, i, text); },
        onmouseleave: () => { hover = null; paint(); },
        onfocus: () => { hover = { side, tokens: [i] }; paint(); tell(side, i, text); },
        onblur: () => { hover = null; paint(); },
        onclick: () => {
          const same = state.side === side && state.tokens.includes(i);
          Object.assign(state, { side, tokens: same ? [] : [i] });
          if (side === "query") state.pair = [i, strongest(i)]; else if (state.pair) state.pair = [state.pair[0], i];
          hover = null; paint(); drawScore();
        },
        onkeydown: (event) => {
          const to = { ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: buttons[side].length - 1 }[event.key];
          if (event.key === "Escape") { state.tokens = []; paint(); }
          const other = { ArrowRight: "key", ArrowLeft: "query" }[event.key];
          const target = other ? buttons[other][Math.min(i, buttons[other].length - 1)] : buttons[side][to];
          if (target && (other || to !== undefined)) { event.preventDefault(); target.focus(); }
        } }, inside);
      buttons[side].push(button);
      return button;
    }
    function tell(side, i, text) {
      const others = side === "query" ? columns : rows;
      const best = others.map((name, j) => [name, side === "query" ? value(i, j) : value(j, i)]).sort((a, b) => b[1] - a[1]).slice(0, 4);
      say(`${apart(text)} ${side === "query" ? "attends to" : "is attended to by"} ${best.map(([name, w]) => `${apart(name)} ${digits(w)}`).join(", ")}${mean && ` (${mean})`}`);
    }
    const left = make("div", { class: "column left" }, rows.map((text, i) => token("query", i, text)));
    const right = make("div", { class: "column right" }, columns.map((text, i) => token("key", i, text)));
    function paint() {
      const chosen = shown(), ratio = window.devicePixelRatio || 1, box = canvas.getBoundingClientRect();
      const width = Math.max(box.width, 60), height = Math.max(rows.length, columns.length) * 22;
      canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
      canvas.style.height = `${height}px`;
      const context = canvas.getContext("2d");
      context.scale(ratio, ratio);
      heads.forEach((weights, h) => {
        context.strokeStyle = color(`--h${h}`);
        context.setLineDash(chosen ? DASHES[h] : []);
        const shift = (h - (heads.length - 1) / 2) * Math.min(2.2, 14 / heads.length);
        for (let t = 0; t < rows.length; t++) for (let s = 0; s < S; s++) {
          if (chosen && !chosen.tokens.includes(chosen.side === "query" ? t : s)) continue;
          const share = weights[t * S + s] / top[h][t];
          if (share < 0.03) continue;
          context.globalAlpha = Math.min(1, chosen ? 0.12 + share : share);
          context.lineWidth = 0.6 + 2.6 * share;
          const y1 = t * 22 + 11 + shift, y2 = s * 22 + 11 + shift;
          context.beginPath(); context.moveTo(0, y1);
          context.bezierCurveTo(width * 0.4, y1, width * 0.6, y2, width, y2);
          context.stroke();
        }
      });
      for (const side of ["query", "key"]) buttons[side].forEach((button, i) => {
        const on = Boolean(chosen && chosen.side === side && chosen.tokens.includes(i));
        button.classList.toggle("on", on);
        button.setAttribute("aria-pressed", String(state.side === side && state.tokens.includes(i)));
        const number = button.querySelector(".w");
        const sum = chosen && chosen.side !== side ? chosen.tokens.reduce((total, j) => total + (side === "key" ? value(j, i) : value(i, j)), 0) / (side === "key" ? chosen.tokens.length : 1) : 0;
        number.textContent = sum >= 0.005 ? sum.toFixed(2) : "";
      });
    }
    const what = state.scaled ? "product" : "weight";
    const note = `The strongest line of a token on the left is its largest ${what} in that head. The number beside a token is the ${mean ? `mean of the ${heads.length} heads` : what}.`;
    const drawing = make("div", {}, make("p", { class: "note" }, note), make("div", { class: "lines" }, make("div", { class: "left heads-of" }, `${query().name} (queries)`), make("span", {}), make("div", { class: "heads-of" }, `${key().name} (keys)`), left, canvas, right));
    drawing.after = paint;
    return drawing;
  }

  // ---- heat map ----
  function map() {
    const rows = rowLabels(), columns = columnLabels(), T = rows.length, S = columns.length, heads = current();
    const canvas = make("canvas", { class: "map", tabindex: 0, role: "img", "aria-label": `heat map of ${title()}; arrow keys move over the cells` });
    const room = Math.min(app.clientWidth, 1180), pen = canvas.getContext("2d");
    pen.font = "12.5px system-ui, sans-serif";
    const cut = (text) => (pen.measureText(text).width > 120 ? `${text.slice(0, 14)}…` : text);
    const shownRows = rows.map(cut), shownColumns = columns.map(cut);
    const left = 14 + Math.max(...shownRows.map((text) => pen.measureText(text).width)), above = 14 + Math.max(...shownColumns.map((text) => pen.measureText(text).width));
    const cell = Math.max(S > 100 ? 5 : 13, Math.min(30, Math.floor((room - left - 8) / S)));
    const width = left + S * cell + 4, height = above + T * cell + 4, ratio = window.devicePixelRatio || 1;
    canvas.width = width * ratio; canvas.height = height * ratio;
    canvas.style.width = `${width}px`; canvas.style.height = `${height}px`;
    const outs = state.heads.map((place) => excluded(layer(), place));
    const top = heads.map((weights) => Math.max(1e-9, ...weights));
    function paint() {
      const context = canvas.getContext("2d"), ink = color("--ink");
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, width, height);
      context.font = "12.5px system-ui, sans-serif";
      context.fillStyle = ink; context.textBaseline = "middle";
      if (cell > 8) {
        context.textAlign = "right";
        shownRows.forEach((text, t) => { context.fillStyle = state.pair && state.pair[0] === t ? color("--s1") : ink; context.fillText(text, left - 8, above + t * cell + cell / 2); });
        context.textAlign = "left";
        shownColumns.forEach((text, s) => { context.save(); context.translate(left + s * cell + cell / 2, above - 6); context.rotate(-Math.PI / 2);
          context.fillStyle = state.pair && state.pair[1] === s ? color("--s1") : ink; context.fillText(text, 0, 0); context.restore(); });
      }
      context.fillStyle = color("--sheet"); context.fillRect(left, above, S * cell, T * cell);
      const gap = cell > 8 ? 1 : 0, part = (cell - gap) / heads.length;
      heads.forEach((weights, h) => {
        const fill = heads.length > 1 ? color(`--h${h}`) : color("--heat");
        for (let t = 0; t < T; t++) for (let s = 0; s < S; s++) {
          const x = left + s * cell + h * part, y = above + t * cell;
          if (outs[h] && outs[h](t, s)) { hatch(context, x, y, part, cell - gap); continue; }
          context.globalAlpha = Math.min(1, weights[t * S + s] / top[h]);
          context.fillStyle = fill; context.fillRect(x, y, part, cell - gap);
          context.globalAlpha = 1;
        }
      });
      if (state.pair) {
        context.strokeStyle = color("--s1"); context.lineWidth = 2;
        context.strokeRect(left + state.pair[1] * cell, above + state.pair[0] * cell, cell, cell);
      }
    }
    function hatch(context, x, y, w, h) {
      context.save(); context.beginPath(); context.rect(x, y, w, h); context.clip();
      context.strokeStyle = color("--out"); context.lineWidth = 1; context.beginPath();
      for (let d = 0; d < w + h; d += 5) { context.moveTo(x + d, y); context.lineTo(x + d - h, y + h); }
      context.stroke(); context.restore();
    }
    function tell([t, s]) {
      const weights = state.heads.map((place, h) => {
        const number = layer().heads[place], out = outs[h] && outs[h](t, s);
        return `${layer().heads.length > 1 ? `head ${number}: ` : ""}${out ? "not computed" : digits(heads[h][t * S + s], 4)}`;
      });
      say(`${apart(rows[t])} → ${apart(columns[s])}   ${weights.join("   ")}`);
    }
    function at(event) {
      const box = canvas.getBoundingClientRect();
      const s = Math.floor((event.clientX - box.left - left) / cell), t = Math.floor((event.clientY - box.top - above) / cell);
      return s >= 0 && s < S && t >= 0 && t < T ? [t, s] : null;
    }
    canvas.addEventListener("mousemove", (event) => { const place = at(event); if (place) tell(place); });
    canvas.addEventListener("click", (event) => { const place = at(event); if (place) { state.pair = place; paint(); tell(place); drawScore(); } });
    canvas.addEventListener("keydown", (event) => {
      const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!move) return;
      event.preventDefault();
      const [t, s] = state.pair || [0, 0];
      state.pair = [Math.min(T - 1, Math.max(0, t + move[0])), Math.min(S - 1, Math.max(0, s + move[1]))];
      paint(); tell(state.pair); drawScore();
    });
    const largest = top.map((value, h) => (heads.length > 1 ? `head ${layer().heads[state.heads[h]]}: ${digits(value)}` : digits(value))).join(", ");
    const drawing = make("div", {}, make("p", { class: "note" }, `The strongest shade is the largest ${state.scaled ? "product" : "weight"} of the map (${largest}).`), make("div", { class: "scroll" }, canvas));
    drawing.after = paint;
    return drawing;
  }

  // ---- attention on a picture ----
  function pictures() {
    const grid = key().grid, S = key().shown.length, rows = rowLabels(), own = query().grid !== null && query().name === key().name;
    const t = Math.min(state.tokens[0] || 0, rows.length - 1), image = new Image();
    const drawn = [];
    const heads = current();
    const shows = heads.map((weights, h) => [`head ${layer().heads[state.heads[h]]}`, weights]);
    if (heads.length > 1) shows.unshift(["mean", heads[0].map((_, i) => heads.reduce((sum, weights) => sum + weights[i], 0) / heads.length)]);
    const figures = shows.map(([name, weights]) => {
      const canvas = make("canvas", { role: "img", tabindex: own ? 0 : -1, class: isSound() ? "upward" : "",
        "aria-label": `${name}: what ${rows[t]} attends to; ${own ? "arrow keys choose another patch" : ""}` });
      drawn.push([canvas, weights]);
      canvas.addEventListener("mousemove", (event) => { const s = patch(event, canvas); if (s !== null) say(`${rows[t]} → ${columnLabels()[s]}   ${name}: ${digits(weights[t * S + s], 4)}`); });
      canvas.addEventListener("click", (event) => { const s = patch(event, canvas); if (s !== null) pick(s); });
      canvas.addEventListener("keydown", (event) => {
        const move = { ArrowUp: -1, ArrowDown: 1, ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (move && own) { event.preventDefault(); select(Math.min(rows.length - 1, Math.max(0, t + move))); }
      });
      const at = t * S, extra = weights.slice(at, at + grid.before).reduce((a, b) => a + b, 0) + weights.slice(at + S - grid.after, at + S).reduce((a, b) => a + b, 0);
      return make("figure", {}, canvas, make("figcaption", {}, `${shows.length > 1 || layer().heads.length > 1 ? name : "weights"}${grid.before + grid.after ? `; ${digits(extra, 2)} to other tokens` : ""}`));
    });
    function patch(event, canvas) {
      const box = canvas.getBoundingClientRect();
      const column = Math.floor(((event.clientX - box.left) / box.width) * grid.columns), top = Math.floor(((event.clientY - box.top) / box.height) * grid.rows);
      const row = isSound() ? grid.rows - 1 - top : top;
      return column >= 0 && column < grid.columns && row >= 0 && row < grid.rows ? grid.before + row * grid.columns + column : null;
    }
    function pick(s) {
      if (!own) { state.pair = [t, s]; drawScore(); return; }
      const place = (i) => [Math.floor((i - grid.before) / grid.columns), (i - grid.before) % grid.columns];
      const [row, column] = place(s);
      let best = 0, least = Infinity;
      query().rows.forEach((i, index) => {
        if (i < grid.before) return;
        const [r, c] = place(i), distance = (r - row) ** 2 + (c - column) ** 2;
        if (distance < least) { least = distance; best = index; }
      });
      select(best);
    }
    function select(index) { Object.assign(state, { tokens: [index], side: "query", pair: [index, strongest(index)] }); draw(); }
    function paint() {
      const shape = image.naturalHeight / image.naturalWidth;
      const wanted = Math.min((state.heads.length > 1 ? 220 : 380) * (shape < 0.5 ? 1.6 : 1), 640 / shape);
      const wide = Math.floor(Math.min(app.clientWidth - 8, wanted) / grid.columns), high = Math.max(6, Math.round((wide * grid.columns * shape) / grid.rows));
      for (const [canvas, weights] of drawn) {
        canvas.width = wide * grid.columns;
        canvas.height = high * grid.rows;
        const context = canvas.getContext("2d");
        context.imageSmoothingEnabled = false;
        context.drawImage(image, 0, 0, canvas.width, canvas.height);
        let top = 1e-9;
        for (let p = 0; p < grid.rows * grid.columns; p++) top = Math.max(top, weights[t * S + grid.before + p]);
        for (let p = 0; p < grid.rows * grid.columns; p++) {
          const x = (p % grid.columns) * wide, y = Math.floor(p / grid.columns) * high;
          context.fillStyle = `rgba(12,11,16,${0.9 * (1 - weights[t * S + grid.before + p] / top)})`;
          context.fillRect(x, y, wide, high);
          if (own && query().rows[t] === grid.before + p) { context.strokeStyle = color("--s1"); context.lineWidth = 3; context.strokeRect(x + 1.5, y + 1.5, wide - 3, high - 3); }
        }
      }
    }
    const listed = rows.map((text, i) => [text, i]).filter(([, i]) => !own || query().rows[i] < grid.before || query().rows[i] >= grid.before + grid.rows * grid.columns);
    const drawing = make("div", {},
      make("p", { class: "legend" }, `What ${rows[t]} attends to: the brighter, the more. ${own ? "Click a patch to see what it attends to." : "Choose a token:"}${isSound() ? " Time runs to the right, high pitches are at the top." : !/^video( \d+)?$/.test(key().name) ? "" : own ? " Frames follow from top to bottom." : " Moments follow from left to right, row by row."}`),
      make("div", { class: "tokens", role: "group", "aria-label": "queries" }, listed.map(([text, i]) => make("button", { "aria-pressed": i === t, onclick: () => select(i) }, label(text)))),
      make("div", { class: "pictures" }, figures));
    image.onload = paint;
    image.src = key().picture;
    return drawing;
  }

  // ---- inside a score ----
  function drawScore() {
    const holder = document.getElementById("score"), one = layer(), place = state.heads[0];
    if (!holder || !state.pair || one.norms === undefined) { if (holder) holder.replaceChildren(); return; }
    const [t, s] = state.pair, S = key().shown.length, T = query().rows.length;
    const rows = rowLabels(), columns = columnLabels(), weights = weightsOf(one, place, false), out = excluded(one, place);
    const steps = [];
    const add = (name, ...content) => steps.push(make("dt", {}, name), make("dd", {}, ...content));
    if (one.q !== undefined) {
      const D = one.width, q = halves(one.q).slice((place * T + t) * D, (place * T + t + 1) * D), k = halves(one.k).slice((place * S + s) * D, (place * S + s + 1) * D);
      const products = q.map((value, i) => value * k[i]), dot = products.reduce((a, b) => a + b, 0);
      add("q", bars(q, "query vector")); add("k", bars(k, "key vector")); add("q · k by element", bars(products, "products"));
      add("sum", digits(dot));
      let score = dot * one.scale;
      add("scaled", `${digits(one.scale, 4)} × ${digits(dot)} = ${digits(score)}`);
      if (one.rotation) {
        const turned = rotationTerm(one.rotation, q, k, t, s, one.scale);
        add("without rotation", `${digits(turned.content)}: the same two vectors before rotary positions`);
        add("rotation adds", `${digits(turned.term)}, by frequency pair, the fastest first`, bars(turned.pairs, "rotation by frequency pair", turned.angles.map((angle) => `at ${digits(angle, 2)} rad`)));
      }
      if (one.softcap) { score = one.softcap * Math.tanh(score / one.softcap); add("soft cap", digits(score)); }
      if (one.bias !== null) { const term = halves(one.bias)[(place * T + t) * S + s]; score += term; add("position term", `${digits(term)}, so the score is ${digits(score)}`); }
      if (one.edit !== null) {
        const term = halves(one.edit)[(place * T + t) * S + s];
        score += term;
        add("intervention", Math.abs(term) > 60000 ? `${term < 0 ? "hides" : "shows"} the pair` : `${digits(term)}, so the score is ${digits(score)}`);
      }
    } else add("q and k", one.dots ? "not in this page, which has room for other layers' alone; `qkv look … --score LAYER.HEAD.QUERY.KEY` prints them" : "this layer's scores are no dot products of queries and keys");
    add("mask", out && out(t, s) ? "excluded: no weight is computed" : "allowed");
    add(`weights of “${apart(rows[t])}”`, bars(Array.from(weights.slice(t * S, (t + 1) * S)), "weights of the row", columns, s));
    add("weight", digits(weights[t * S + s], 4));
    const norms = floats(one.norms), shares = columns.map((_, j) => weights[t * S + j] * norms[place * S + j]), total = shares.reduce((a, b) => a + b, 0);
    add("value", `norm ${digits(norms[place * S + s])} behind the output projection; ${digits(total ? (100 * shares[s]) / total : 0, 1)} % of the head's output by norm`);
    holder.replaceChildren(make("h3", {}, "Inside a score: ", label(rows[t]), " → ", label(columns[s]), `, layer ${one.index}, head ${one.heads[place]}`),
      make("p", { class: "note" }, "Choose another pair in the heat map or by clicking tokens. Vectors are rounded to 16 bits, weights to 8."), make("dl", { class: "steps" }, steps));
  }
  // What rotary positions add to a score: both vectors are turned back by the tables (cosines, then sines, of all tokens).
  function rotationTerm(rotation, q, k, t, s, scale) {
    const R = rotation.pairs, pairs = [], angles = [];
    const table = (index, i, j) => { const all = floats(index), half_ = all.length / 2; return [all[i * R + j], all[half_ + i * R + j]]; };
    let dot = 0;
    for (let i = 0; i < q.length; i++) dot += q[i] * k[i];
    for (let j = 0; j < R; j++) {
      const [a, b] = rotation.interleaved ? [2 * j, 2 * j + 1] : [j, j + R];
      const [cq, sq] = table(rotation.q, t, j), [ck, sk] = table(rotation.k, s, j), nq = cq * cq + sq * sq, nk = ck * ck + sk * sk;
      const back = (x, c, n, size) => [(x[a] * c + x[b] * n) / size, (x[b] * c - x[a] * n) / size];
      const [qa, qb] = back(q, cq, sq, nq), [ka, kb] = back(k, ck, sk, nk);
      pairs.push(scale * (q[a] * k[a] + q[b] * k[b] - qa * ka - qb * kb));
      angles.push(Math.atan2(sq * ck - cq * sk, cq * ck + sq * sk));
    }
    const term = pairs.reduce((sum, one) => sum + one, 0);
    return { content: scale * dot - term, term, pairs, angles };
  }
  function bars(values, name, names, marked) {
    const width = Math.max(values.length * (values.length > 150 ? 2 : 6), 60), height = 34, ratio = window.devicePixelRatio || 1;
    const canvas = make("canvas", { width: width * ratio, height: height * ratio, role: "img", "aria-label": `${name}: ${values.length} numbers from ${digits(Math.min(...values))} to ${digits(Math.max(...values))}` });
    canvas.style.width = `${width}px`; canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d"), most = Math.max(1e-9, ...values.map(Math.abs)), negative = values.some((value) => value < 0);
    context.scale(ratio, ratio);
    const zero = negative ? height / 2 : height - 1, room = negative ? height / 2 - 1 : height - 3, step_ = width / values.length;
    values.forEach((value, i) => {
      context.fillStyle = i === marked ? color("--s1") : color(value < 0 ? "--h1" : "--heat");
      const size = (Math.abs(value) / most) * room;
      context.fillRect(i * step_, value < 0 ? zero : zero - size, Math.max(1, step_ - 1), Math.max(size, 0.5));
    });
    context.fillStyle = color("--soft"); context.fillRect(0, zero, width, 0.7);
    canvas.addEventListener("mousemove", (event) => {
      const i = Math.min(values.length - 1, Math.max(0, Math.floor(((event.clientX - canvas.getBoundingClientRect().left) / canvas.getBoundingClientRect().width) * values.length)));
      say(`${name}[${i}]${names ? ` ${apart(names[i])}` : ""}: ${digits(values[i], 4)}`);
    });
    return make("div", { class: "scroll" }, canvas);
  }

  // ---- further panels ----
  const KINDS = { heat: heatPanel, table: tablePanel, tree: treePanel, texts: textsPanel };
  function panel(one) {
    const body = KINDS[one.kind] ? KINDS[one.kind](one) : make("p", {}, `This page cannot draw ${one.kind}.`);
    return make("section", {}, make("h2", {}, one.title), one.note ? make("p", { class: "note" }, one.note) : null, body);
  }
  function heatPanel(one) {
    const most = Math.max(1e-12, ...one.values.flat().filter((value) => value !== null).map(Math.abs));
    const head_ = make("tr", {}, make("th", {}, one.rowTitle && one.columnTitle ? `${one.rowTitle} \\ ${one.columnTitle}` : ""), one.columns.map((text) => make("th", { scope: "col" }, make("span", {}, label(text)))));
    const body = one.rows.map((name, r) => make("tr", {}, make("th", { scope: "row" }, label(name)), one.columns.map((column, c) => {
      const value = one.values[r][c], text = one.texts ? one.texts[r][c] : one.diverging && value !== null && value < 0 ? "−" : "";
      const spoken = `${apart(name)}, ${apart(column)}: ${text && one.texts ? `${apart(text)}, ` : ""}${value === null ? "none" : digits(value, 4)}`;
      const cell = make("td", { class: value === null ? "none" : "", title: spoken, onmouseenter: () => say(spoken) });
      if (value !== null) { const ink = make("i", { class: value < 0 ? "minus" : "" }); ink.style.opacity = Math.abs(value) / most; cell.append(ink); }
      if (text) cell.append(make("b", {}, label(text)));
      return cell;
    })));
    return make("div", { class: "scroll" }, make("table", { class: "cells" }, make("thead", {}, head_), make("tbody", {}, body)));
  }
  function tablePanel(one) {
    const body = make("tbody", {});
    let order = { column: null, down: true };
    function fill() {
      const rows = [...one.rows];
      if (order.column !== null) rows.sort((a, b) => {
        const [x, y] = [a[order.column], b[order.column]];
        return (typeof x === "number" && typeof y === "number" ? y - x : String(x).localeCompare(String(y))) * (order.down ? 1 : -1);
      });
      body.replaceChildren(...rows.map((row) => make("tr", {}, row.map((cell) => make("td", { class: typeof cell === "number" || cell === null ? "number" : "" }, typeof cell === "string" ? label(parts(cell)) : cell === null ? "–" : Number.isInteger(cell) ? String(cell) : digits(cell, 4))))));
    }
    fill();
    const head_ = make("tr", {}, one.columns.map((name, i) => make("th", { scope: "col" }, make("button", { onclick: () => { order = { column: i, down: order.column === i ? !order.down : true }; fill(); } }, name))));
    return make("div", { class: "scroll tall", tabindex: 0 }, make("table", { class: "plain" }, make("thead", {}, head_), body));
  }
  function treePanel(one) {
    const branch = (node) => make("li", { class: node.chosen ? "chosen" : "" }, make("span", {}, label(node.label), " "), make("small", {}, node.value === null ? "" : digits(node.value), node.why ? ` ${node.why}` : "", node.chosen ? " ✓" : ""),
      node.branches.length ? make("ul", {}, node.branches.map(branch)) : null);
    return make("div", { class: "scroll" }, make("ul", { class: "tree" }, one.roots.map(branch)));
  }

  function textsPanel(one) {
    const most = Math.max(1e-12, ...one.rows.flatMap((row) => row.values).filter((value) => value !== null).map(Math.abs));
    return make("ol", { class: "texts" }, one.rows.map((row) => make("li", {}, make("span", { class: "value" }, digits(row.values[row.at])), make("p", { dir: "auto" },
      row.cut[0] ? "… " : "",
      row.tokens.map((text, i) => {
        const value = row.values[i], spoken = `${apart(text)}: ${value === null ? "none" : digits(value, 4)}`;
        const ink = make("i", { class: value < 0 ? "minus" : "" });
        ink.style.opacity = 0.8 * Math.abs(value ?? 0) / most;
        return make("span", { class: i === row.at ? "excited at" : "excited", title: spoken, onmouseenter: () => say(spoken) }, ink, make("b", {}, label(text)), make("small", {}, value === null ? "–" : digits(value, 2)));
      }), row.cut[1] ? " …" : ""))));
  }

  // ---- live page ----
  const field = (name, input) => make("label", {}, make("span", {}, name), input);
  function form() {
    const text = make("textarea", { name: "text", dir: "auto", "aria-label": "text" });
    text.value = view().text;
    const given = view().axes.source ? make("input", { name: "target", placeholder: "empty: generated", dir: "auto", "aria-label": "output" }) : null;
    if (given) given.value = live.target;
    const neuron = make("input", { name: "neuron", placeholder: "LAYER.INDEX, to see the texts that excite it", "aria-label": "neuron whose strongest texts are shown, LAYER.INDEX" });
    neuron.value = live.neuron;
    const patch = make("input", { name: "patch", placeholder: "another text of as many tokens", dir: "auto", "aria-label": "other text of as many tokens, for activation patching" });
    patch.value = live.patch;
    return make("form", { class: "form", onsubmit: (event) => {
      event.preventDefault();
      Object.assign(live, { target: given ? given.value : "", neuron: neuron.value, patch: patch.value });
      ask(text.value);
    } }, text, given && field("output", given), field("neuron", neuron), field("patch into", patch), make("div", { class: "bar" }, make("button", { type: "submit" }, "look")), changeList());
  }
  const describe = (one) => `${one.part}, layer ${one.layer}${one.head === null ? "" : `, head ${one.head}`}: ${one.factor === 0 ? "off" : `× ${one.factor}`}`;
  function changeList() {
    if (!state.changes.length) return null;
    return make("div", { class: "bar", role: "group", "aria-label": "changes" }, make("span", {}, "changed:"),
      state.changes.map((one, i) => make("button", { "aria-label": `undo ${describe(one)}`, onclick: (event) => { event.preventDefault(); ask(view().text, state.changes.filter((other) => other !== one)); } }, `${describe(one)} ✕`)));
  }
  function changeBar() {
    const part = group().name, known = ["encoder", "decoder", "cross"].includes(part) && layer().norms !== undefined, index = layer().index;
    if (!known) return "";
    const stack = part === "cross" ? "decoder" : part;
    const change = (made) => {
      const same = (a, b) => a.part === b.part && a.layer === b.layer && a.head === b.head;
      ask(view().text, [...state.changes.filter((old) => !made.some((one) => same(one, old))), ...made.filter((one) => one.factor !== 1)]);
    };
    const what = {
      [state.heads.length > 1 ? "these heads" : "this head"]: (factor) => state.heads.map((place) => ({ part, layer: index, head: layer().heads[place], factor })),
      [`attention of layer ${index}`]: (factor) => [{ part, layer: index, head: null, factor }],
      [`feed-forward of layer ${index}`]: (factor) => [{ part: `feedforward of ${stack}`, layer: index, head: null, factor }],
    };
    const chosen = make("select", { "aria-label": "what is changed", onchange: () => { state.part = chosen.selectedIndex; } },
      Object.keys(what).map((name, i) => make("option", { value: name, selected: i === state.part }, name)));
    const button = (name, factor) => make("button", { onclick: () => change(what[chosen.value](factor)) }, name);
    return make("div", { class: "bar", role: "group", "aria-label": "change the model" }, make("span", {}, "change"), chosen,
      button("off", 0), button("× 0.5", 0.5), button("× 2", 2), button("as trained", 1));
  }
  async function ask(text, changes = state.changes) {
    say("computing …");
    try {
      const answer = await fetch("look", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ text, ...live, changes }) });
      const body = await answer.json();
      if (!answer.ok) { say(body.error); return; }
      const address = location.hash;
      data = body;
      state.changes = changes;
      bytes = new Map();
      try { history.replaceState(null, "", address); } catch (error) { /* no address */ }
      fromAddress();
      render();
      say("");
    } catch (error) { say(`the server does not answer: ${error.message}`); }
  }

  // ---- the address: page.html#layer=3&heads=0,5&mode=map ----
  function fromAddress() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    const number = (name, count) => (/^\d+$/.test(wanted.get(name) || "") && Number(wanted.get(name)) < count ? Number(wanted.get(name)) : null);
    openView(number("input", data.views.length) || 0);
    if (!view().groups.length) return;
    const at = view().groups.findIndex((one) => one.name === wanted.get("kind"));
    if (at >= 0 && at !== state.group) openGroup(at);
    const row = group().layers.findIndex((one) => String(one.index) === wanted.get("layer"));
    if (row >= 0) Object.assign(state, { layer: row, heads: [0] });
    const heads = (wanted.get("heads") || "").split(",").map((text) => layer().heads.findIndex((head) => String(head) === text)).filter((place) => place >= 0);
    if (heads.length) state.heads = heads.slice(0, HEADS);
    if (["lines", "map"].includes(wanted.get("mode")) && !(hasPicture() && wanted.get("mode") === "lines")) state.mode = wanted.get("mode");
    const token = number("token", query().rows.length);
    if (token !== null) Object.assign(state, { tokens: [token], side: "query", pair: [token, strongest(token)] });
  }
  function toAddress() {
    const fields = { input: state.view, kind: group().name, layer: layer().index, heads: state.heads.map((place) => layer().heads[place]).join(","), mode: state.mode };
    if (state.side === "query" && state.tokens.length === 1) fields.token = state.tokens[0];
    try { history.replaceState(null, "", `#${new URLSearchParams(fields)}`); } catch (error) { /* a frame of a notebook has no address */ }
  }

  fromAddress();
  render();
  let width = window.innerWidth;
  window.addEventListener("resize", () => { if (window.innerWidth !== width) { width = window.innerWidth; render(); } });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
})();
