// The page: a sentence, its tree, and the translations and attention of one or two runs.

import { draw } from "./arcs.js";
import { fillSelect, showAttention } from "./maps.js";
import { Tree } from "./tree.js";

const $ = (id) => document.getElementById(id);
const SIDES = ["left", "right"];
const state = {
  runs: [],
  text: "",  // last sentence
  trees: [],  // the original tree and its changes; the last one is shown
  views: new Map(),  // side -> {run, answer, panel, selection, first}; first: translation
  controller: new AbortController(),  // of the current requests
};

async function start() {
  listen();
  const query = new URLSearchParams(location.search);
  $("text").value ||= query.get("text") ?? "";  // the user may have begun to type
  try {
    state.runs = (await call("runs")).runs;
  } catch (error) {
    showStatus(error.message, true);
    return;
  }
  const names = state.runs.map((run) => run.name);
  fillSelect($("left"), names, query.get("left"));
  fillSelect($("right"), ["", ...names], query.get("right") ?? names[1], (name) => name || "nothing");
  if ($("text").value) translate();
}

function listen() {
  $("form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (state.runs.length) translate();  // otherwise start() does it
  });
  $("text").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    $("form").requestSubmit();
  });
  for (const side of SIDES) $(side).addEventListener("change", () => state.text && translate());
  $("undo").addEventListener("click", () => changeTree(state.trees.slice(0, -1)));
  $("reset").addEventListener("click", () => changeTree(state.trees.slice(0, 1)));
  $("use-conllu").addEventListener("click", useConllu);
}

// Returns the response of the server, or throws an error with its message and status.
async function call(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  const options = body ? { method: "POST", headers, body: JSON.stringify(body), signal } : {};
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server cannot be reached. Is it still running?");
  }
  const content = await response.json();
  if (!response.ok) throw Object.assign(new Error(content.error), { status: response.status });
  return content;
}

// Translates the sentence in the field, with the tree of the first parser.
async function translate() {
  const text = $("text").value.trim();
  if (!text) return;
  state.text = text;
  const query = new URLSearchParams({ text, left: $("left").value, right: $("right").value });
  history.replaceState(null, "", `?${query}`);
  await update(async (signal) => {
    const reader = selectedRuns().find(({ run }) => run.parser);
    const parse = reader ? await call("parse", { run: reader.run.name, text }, signal) : null;
    state.trees = parse?.words.length ? [new Tree(parse.conllu)] : [];
    forgetTranslations();
    showTree();
    return parse?.words.length ? { conllu: parse.conllu } : { text };
  });
}

function useConllu() {
  const tree = new Tree($("conllu").value);
  if (!tree.words.length) {
    showStatus("There is no word: a row has ten columns with tabs between, the first 1, 2, 3, …", true);
    return;
  }
  forgetTranslations();
  changeTree([tree]);
}

function forgetTranslations() {
  for (const view of state.views.values()) view.first = null;
}

async function changeTree(trees) {
  state.trees = trees;
  showTree();
  await update(async () => ({ conllu: trees.at(-1).conllu }));
}

function moveWord(word, parent) {
  const tree = state.trees.at(-1);
  const problem = tree.whyNot(word, parent);
  if (problem) showStatus(problem, true);
  else changeTree([...state.trees, tree.withParent(word, parent)]);
}

// Shows the results of all selected runs, and cancels earlier requests.
// findSource: returns {text} or {conllu}.
async function update(findSource) {
  state.controller.abort();
  state.controller = new AbortController();
  const { signal } = state.controller;
  const start = performance.now();
  document.body.setAttribute("aria-busy", true);
  showStatus("Translating …");
  try {
    const source = await findSource(signal);
    signal.throwIfAborted();
    arrange();
    await Promise.all(selectedRuns().map(({ side, run }) => showResult(state.views.get(side), run, source, signal)));
    showStatus(`Finished in ${((performance.now() - start) / 1000).toFixed(1)} s.`);
  } catch (error) {
    if (!signal.aborted) showStatus(error.message, true);
  } finally {
    if (!signal.aborted) document.body.removeAttribute("aria-busy");
  }
}

async function showResult(view, run, source, signal) {
  let result = { translation: "", nbest: [], note: "" };
  let message = "";
  try {
    result = await inspect(run, source, signal);
  } catch (error) {
    message = error.message;
  }
  signal.throwIfAborted();
  const { answer, panel } = view;
  answer.querySelector(".error").textContent = message;
  const before = view.first ?? result.translation;
  const comparison = result.translation === before ? "The same as before." : `Before: ${before}`;
  answer.querySelector(".note").textContent = result.note ?? (view.first === null ? "" : comparison);
  if (!message) view.first = before;
  const translation = answer.querySelector(".translation");
  translation.lang = run.languages.target;
  translation.replaceChildren(...marked(result.translation, before));
  panel.querySelector(".nbest tbody").replaceChildren(...result.nbest.map((one) => {
    const row = document.createElement("tr");
    row.append(...[one.text, one.score.toFixed(3), one.log_p.toFixed(3)].map((value) => cell("td", value)));
    return row;
  }));
  panel.querySelector(".figures").hidden = !result.attention;
  if (result.attention) showAttention(result, panel, view.selection);
}

// Returns translations and figures, or translations only if the sentence is too long for figures.
async function inspect(run, source, signal) {
  try {
    return await call("inspect", { run: run.name, ...source }, signal);
  } catch (error) {
    if (error.status !== 422) throw error;
    const body = { run: run.name, nbest: run.nbest, ...source };
    const { text, nbest, cut } = (await call("translate", body, signal)).translations[0];
    const truncated = cut ? " Only its beginning was translated." : "";
    return { translation: text, nbest, note: `Without figures: ${error.message}${truncated}` };
  }
}

function selectedRuns() {
  const runOf = (side) => state.runs.find((run) => run.name === $(side).value);
  return SIDES.map((side) => ({ side, run: runOf(side) })).filter(({ run }) => run);
}

// Places an answer and a panel for each selected run.
function arrange() {
  const copy = (name) => $(name).content.firstElementChild.cloneNode(true);
  for (const { side, run } of selectedRuns()) {
    if (state.views.get(side)?.run === run) continue;
    const view = { run, answer: copy("answer"), panel: copy("panel"), selection: {}, first: null };
    view.answer.querySelector(".name").textContent = run.name;
    view.panel.querySelector("h2").textContent = run.name;
    const { source, target } = run.languages;
    const tree = run.tree === "none" ? "reads no tree" : `reads ${run.tree} trees`;
    view.panel.querySelector(".about").textContent =
      `${source} to ${target}, system ${run.system}, ${tree}; ${run.checkpoint}`;
    state.views.set(side, view);
  }
  const views = selectedRuns().map(({ side }) => state.views.get(side));
  $("answers").replaceChildren(...views.map((view) => view.answer));
  $("panels").replaceChildren(...views.map((view) => view.panel));
}

// Returns a text in which the words that differ from another text are marked.
function marked(text, other) {
  const [words, old] = [text.split(" "), other.split(" ")];
  const shorter = Math.min(words.length, old.length);
  let start = 0;
  while (start < shorter && words[start] === old[start]) start += 1;
  let end = 0;
  while (end < shorter - start && words.at(-1 - end) === old.at(-1 - end)) end += 1;
  const stop = words.length - end;
  if (start === stop) return [text];
  const join = (part) => part.join(" ");
  return [join([...words.slice(0, start), ""]), cell("mark", join(words.slice(start, stop))),
    join(["", ...words.slice(stop)])];
}

function showTree() {
  const tree = state.trees.at(-1);
  $("tree").hidden = !tree;
  $("conllu").value = tree?.conllu.trimEnd() ?? "";
  if (!tree) return;
  const isChanged = (word) => tree.heads[word] !== state.trees[0].heads[word];
  draw($("arcs"), tree, moveWord, isChanged);
  $("undo").disabled = $("reset").disabled = state.trees.length < 2;
  const count = tree.words.filter((_, word) => isChanged(word)).length;
  $("changed").textContent = count ? `Changed parents: ${count}` : "";
  $("parents").querySelector("tbody").replaceChildren(...tree.words.map((_, word) => parentRow(tree, word)));
}

function parentRow(tree, word) {
  const row = document.createElement("tr");
  const select = document.createElement("select");
  select.setAttribute("aria-label", `Parent of ${tree.words[word]}, word ${word + 1}`);
  fillSelect(select, [...tree.words.keys()], tree.heads[word], (other) =>
    other === word ? "root" : `${other + 1} ${tree.words[other]}`);
  for (const option of select.options) option.disabled = tree.whyNot(word, Number(option.value)) !== "";
  select.addEventListener("change", () => {
    moveWord(word, Number(select.value));
    $("parents").querySelectorAll("select")[word].focus();
  });
  const name = cell("th", tree.words[word]);
  name.scope = "row";
  const parent = cell("td", "");
  parent.append(select);
  row.append(name, parent, cell("td", tree.relations[word]));
  return row;
}

function cell(kind, content) {
  const created = document.createElement(kind);
  created.textContent = content;
  return created;
}

function showStatus(message, isError = false) {
  $("status").textContent = message;
  $("status").classList.toggle("error", isError);
}

start();
