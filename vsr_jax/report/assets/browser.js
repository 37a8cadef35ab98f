// Rollout browser: a bucket-transition cell, then a prompt, then a policy's responses.
// All text comes from data and enters the page as text nodes, never as markup.
"use strict";

const BUCKETS = ["all_correct", "mixed", "all_wrong"];
const MARKS = { forced: "forced", high_js: "high JS" };

function node(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "click") made.addEventListener("click", value);
    else if (name === "change") made.addEventListener("change", value);
    else if (name.startsWith("data-") || name.startsWith("aria-") || name === "scope") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children);
  return made;
}

function choice(label, options, chosen, change) {
  const select = node("select", { change: (event) => change(Number(event.target.value)) });
  options.forEach((text, i) => select.append(node("option", { value: i, selected: i === chosen }, text)));
  select.setAttribute("aria-label", label);
  return select;
}

function toggle(text, pressed, click, data = {}) {
  return node("button", { type: "button", "aria-pressed": String(pressed), click, ...data }, ...[].concat(text));
}

function startBrowser(root, data) {
  const { policies, prompts, titles, colours } = data;
  const state = { before: 0, after: policies.length > 1 ? 1 : 0, cell: null, prompt: null, policy: 0, verdict: "all", opening: "all" };

  const isIncomplete = (p) => [state.before, state.after].some((i) => p.buckets[i] === "incomplete");
  const inCell = (p) =>
    state.cell === "incomplete"
      ? isIncomplete(p)
      : p.buckets[state.before] === state.cell[0] && p.buckets[state.after] === state.cell[1];
  const passes = (p, policy) => `${p.passes[policy][0]}/${p.passes[policy][1]}`;

  function set(change) {
    Object.assign(state, change);
    draw();
  }

  function swatch(bucket) {
    const made = node("span", { className: "swatch" });
    made.style.background = colours[bucket];
    return made;
  }

  function drawPair() {
    const pick = (side) => (i) => set({ [side]: i, cell: null, prompt: null });
    return node("div", { className: "bar" },
      node("span", {}, "From"), choice("policy before", policies, state.before, pick("before")),
      node("span", {}, "to"), choice("policy after", policies, state.after, pick("after")));
  }

  function cellButton(row, column) {
    const count = prompts.filter((p) => p.buckets[state.before] === row && p.buckets[state.after] === column).length;
    const pressed = Array.isArray(state.cell) && state.cell[0] === row && state.cell[1] === column;
    const button = toggle(String(count), pressed, () => set({ cell: [row, column], prompt: null }), { "data-cell": `${row}>${column}` });
    button.disabled = count === 0;
    button.setAttribute("aria-label", `${titles[row]} before, ${titles[column]} after: ${count} prompts`);
    return button;
  }

  function drawCells() {
    const head = node("tr", {}, node("th", {}, `${policies[state.before]} ↓  ${policies[state.after]} →`),
      ...BUCKETS.map((bucket) => node("th", { scope: "col" }, swatch(bucket), titles[bucket])));
    const rows = BUCKETS.map((row) => node("tr", {}, node("th", { scope: "row" }, swatch(row), titles[row]),
      ...BUCKETS.map((column) => node("td", {}, cellButton(row, column)))));
    const table = node("table", { className: "cells" }, node("thead", {}, head), node("tbody", {}, ...rows));
    const open = prompts.filter(isIncomplete).length;
    const extra = open
      ? [node("div", { className: "bar" }, toggle(`Incomplete: ${open}`, state.cell === "incomplete",
          () => set({ cell: "incomplete", prompt: null }), { "data-cell": "incomplete" }))]
      : [];
    return [node("div", { className: "wide" }, table), ...extra];
  }

  function drawPrompts() {
    if (state.cell === null) return [node("p", { className: "empty" }, "Choose a cell to see its prompts.")];
    const shown = prompts.filter(inCell);
    const buttons = shown.map((p) =>
      toggle([p.id, node("small", {}, `${passes(p, state.before)} → ${passes(p, state.after)}`)], state.prompt === p,
        () => set({ prompt: p, policy: state.after, verdict: "all", opening: "all" }), { "data-prompt": p.id }));
    return [node("h3", {}, `${shown.length} ${shown.length === 1 ? "prompt" : "prompts"}, passes before → after`),
      node("div", { className: "prompts" }, ...buttons)];
  }

  function drawText(response) {
    const pieces = response.segments ?? [[response.text, ""]];
    const parts = pieces.map(([text, mark]) =>
      mark ? node("mark", { className: mark, title: MARKS[mark] }, text) : text);
    if (response.cut) parts.push(node("span", { className: "empty" }, ` … ${response.cut} more characters left out`));
    return node("pre", {}, ...parts);
  }

  function drawResponse(response) {
    const kind = response.passed === null ? "open" : response.passed ? "passed" : "failed";
    const verdict = response.passed === null ? "no verdict" : kind;
    const facts = [`sample ${response.sample}`, response.opening, response.status, response.finish]
      .filter((fact) => fact !== undefined && fact !== "")
      .map((fact) => node("span", {}, String(fact)));
    const constraints = (response.constraints ?? []).map(([name, held]) =>
      node("li", { className: held ? "held" : "broken" }, `${held ? "✓" : "✗"} ${name}`));
    return node("article", { className: `response ${kind}` },
      node("div", { className: "facts" }, node("span", { className: "verdict" }, verdict), ...facts),
      ...(constraints.length ? [node("ul", { className: "constraints" }, ...constraints)] : []),
      drawText(response));
  }

  function drawResponses() {
    const p = state.prompt;
    if (p === null) return [];
    const all = p.responses[state.policy];
    const tabs = policies.map((name, i) =>
      toggle(`${name} ${passes(p, i)}`, i === state.policy, () => set({ policy: i }), { "data-policy": name }));
    const openings = ["all", ...new Set(all.map((r) => r.opening).filter(Boolean))];
    const verdicts = ["all", "passed", "failed", "no verdict"];
    const opening = openings.includes(state.opening) ? state.opening : "all";
    const shown = all.filter((r) =>
      (opening === "all" || r.opening === opening) &&
      (state.verdict === "all" || state.verdict === (r.passed === null ? "no verdict" : r.passed ? "passed" : "failed")));
    const seen = new Set(all.flatMap((r) => (r.segments ?? []).map(([, mark]) => mark)));
    const key = Object.keys(MARKS).filter((mark) => seen.has(mark))
      .map((mark) => node("span", {}, node("mark", { className: mark }, MARKS[mark])));
    return [node("h3", {}, p.id), node("div", { className: "prompt" }, node("pre", {}, p.text)),
      node("div", { className: "bar" }, ...tabs),
      node("div", { className: "bar" },
        node("span", {}, "Verdict"), choice("verdict", verdicts, verdicts.indexOf(state.verdict), (i) => set({ verdict: verdicts[i] })),
        node("span", {}, "Opening"), choice("opening", openings, openings.indexOf(opening), (i) => set({ opening: openings[i] })),
        node("span", {}, `${shown.length} of ${all.length} responses`), ...key),
      ...shown.map(drawResponse)];
  }

  function draw() {
    // Redrawing replaces the pressed button; give the focus back to its successor.
    const held = root.contains(document.activeElement) ? [...document.activeElement.attributes].find((a) => a.name.startsWith("data-")) : null;
    const scroll = root.querySelector(".prompts")?.scrollTop ?? 0;
    root.replaceChildren(drawPair(), ...drawCells(), ...drawPrompts(), ...drawResponses());
    const list = root.querySelector(".prompts");
    if (list) list.scrollTop = scroll;
    if (held) [...root.querySelectorAll(`[${held.name}]`)].find((n) => n.getAttribute(held.name) === held.value)?.focus({ preventScroll: true });
  }

  draw();
}

for (const root of document.querySelectorAll("[data-browser]")) {
  startBrowser(root, JSON.parse(document.getElementById(root.dataset.browser).textContent));
}
