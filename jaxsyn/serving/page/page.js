// The page: a sentence, its tree, and what one run or two make of both.

import { draw } from "./arcs.js";
import { watch } from "./edges.js";
import { languages, wanted } from "./languages.js";
import { choose, show } from "./maps.js";
import * as server from "./server.js";
import { Tree } from "./tree.js";

const $ = (id) => document.getElementById(id);
const SIDES = ["left", "right"];
const TRANSLATING = "Translating …";

const page = {
  runs: [],
  text: "",  // that was asked for last
  limit: Infinity,  // characters of a sentence
  tooLong: "",  // message about the length of the sentence in the field
  parsed: null,  // its tree as the parser, or a file, had it
  isOwn: false,  // it is not the parser's
  trees: [],  // and as it was changed, the last is shown
  moves: [],  // what was changed of a parser's tree
  panels: new Map(),  // side -> {name, answer, element, chosen, first}
  asking: new AbortController(),
};

const tree = () => page.trees.at(-1) ?? null;

async function begin() {
  try {
    const told = await server.runs();
    page.runs = told.runs;
    page.limit = told.limits?.max_characters ?? Infinity;
  } catch (error) {
    say(error.message, true);
    return;
  }
  const names = page.runs.map((run) => run.name);
  const asked = new URLSearchParams(location.search);
  choose($("left"), names, asked.get("left") ?? names[0], named);
  choose($("right"), ["", ...names], asked.get("right") ?? names[1] ?? "", (name) => (name ? named(name) : "nothing"));
  suggest();
  $("text").value = asked.get("text") ?? "";
  $("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    translate();
  });
  $("text").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    $("ask").requestSubmit();
  });
  $("text").addEventListener("input", checkLength);
  for (const side of SIDES) $(side).addEventListener("change", () => page.text && translate());
  $("left").addEventListener("change", suggest);
  document.querySelectorAll(".scroll").forEach(watch);
  $("undo").addEventListener("click", () => changeTo(page.trees.slice(0, -1)));
  $("reset").addEventListener("click", () => changeTo([page.parsed]));
  $("take").addEventListener("click", take);
  if ($("text").value) translate(asked.get("moved")?.split(",") ?? []);
  else await ready(page.asking.signal, "");
}

// Waits until the server has compiled its programs, and shows a message then.
async function ready(signal, message) {
  for (let waited = false; ; waited = true) {
    const { status, compiled, sizes } = await server.health();
    if (signal.aborted) return;
    if (status !== "starting") {
      if (waited) say(message);
      return;
    }
    const count = sizes ? `: ${compiled} of ${sizes}` : "";
    say(`The server is starting. Programs are being compiled${count} …`);
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}

// Says while the server compiles that it does; returns a function that ends this.
function watchCompilation() {
  let ends = false;
  let shown = null;
  const timer = setInterval(async () => {
    const { compiling, programs } = await server.health();
    if (ends) return;
    if (compiling) {
      shown = `Programs are being compiled for sentences of this length (${programs} so far) …`;
      say(shown);
    } else if ($("status").textContent === shown) {
      say(TRANSLATING);
    }
  }, 1000);
  return () => {
    ends = true;
    clearInterval(timer);
  };
}

// Why a sentence is not translated; "" if it is short enough.
function tooLong(text) {
  const length = [...text].length;  // characters as the server counts them
  if (length <= page.limit) return "";
  const [had, most] = [length, page.limit].map((count) => count.toLocaleString("en"));
  return `The sentence has ${had} characters; at most ${most} are translated. Shorten or split it.`;
}

// Shows that the sentence in the field is too long, until it is shortened.
function checkLength() {
  const message = tooLong($("text").value.trim());
  if (message || $("status").textContent === page.tooLong) say(message, true);
  page.tooLong = message;
  return !message;
}

const runOf = (name) => page.runs.find((run) => run.name === name);

// A run with its languages.
function named(name) {
  const between = languages(runOf(name));
  return between ? `${name} (${between})` : name;
}

function suggest() {
  $("text").placeholder = wanted(runOf($("left").value) ?? {});
}

// The sentence that was typed, with the tree of a run's parser, of which some words are moved.
async function translate(moves = []) {
  const text = $("text").value.trim();
  if (!text) return;
  if (!checkLength()) return;
  page.text = text;
  page.moves = moves;
  remember();
  let unfit = false;
  await work(async (signal) => {
    let parsed = null;
    const reader = chosenRuns().find(({ run }) => run.parser);
    if (reader) parsed = new Tree((await server.parse(reader.run.name, text, signal)).conllu);
    signal.throwIfAborted();
    page.parsed = parsed?.words.length ? parsed : null;
    page.isOwn = false;
    page.trees = page.parsed ? [page.parsed] : [];
    const led = moves.length ? page.parsed?.led(moves) : null;
    if (led) page.trees.push(led);
    unfit = moves.length > 0 && !led;
    page.panels.forEach((panel) => (panel.first = null));
    showTree();
    return tree() ? { conllu: tree().conllu } : { text };
  });
  if (unfit) say("The parents in this address do not fit: this is the parser's tree.", true);
}

// A tree that was typed or pasted.
function take() {
  const own = new Tree($("conllu").value);
  if (!own.words.length) {
    say("There is no word: a row has ten columns with tabs between, the first 1, 2, 3, ….", true);
    return;
  }
  page.parsed = own;
  page.isOwn = true;
  page.panels.forEach((panel) => (panel.first = null));
  changeTo([own]);
}

function changeTo(trees) {
  page.trees = trees;
  showTree();
  return work(async () => ({ conllu: tree().conllu }));
}

function move(word, parent) {
  changeTo([...page.trees, tree().moved(word, parent)]);
}

// Asks all runs that are chosen; what is still being asked is forgotten.
async function work(given) {
  page.asking.abort();
  page.asking = new AbortController();
  const { signal } = page.asking;
  const began = performance.now();
  arrange();
  say(TRANSLATING);
  let stop = () => {};
  try {
    await ready(signal, TRANSLATING);
    signal.throwIfAborted();
    stop = watchCompilation();
    const source = await given(signal);
    const found = await Promise.all(chosenRuns().map((one) => ask(one, source, signal)));
    stop();
    if (signal.aborted) return;
    const seconds = ((performance.now() - began) / 1000).toFixed(1);
    say(found.every(Boolean) ? `Translated in ${seconds} s.` : "Not translated.");
  } catch (error) {
    stop();
    if (signal.aborted) return;
    arrange(false);
    say(error.message, true);
  } finally {
    stop();
  }
}

// Whether it was translated.
async function ask({ side, run }, source, signal) {
  const panel = page.panels.get(side);
  try {
    const seen = await inspected(run, source, signal);
    if (!signal.aborted) fill(panel, run, seen);
    return true;
  } catch (error) {
    if (!signal.aborted) fault(panel, error);
    return false;
  } finally {
    if (!signal.aborted) setBusy(panel, false);
  }
}

// What is shown of a sentence; without figures where it is too long for them.
async function inspected(run, source, signal) {
  try {
    return await server.inspect(run.name, source, signal);
  } catch (error) {
    if (error.status !== 422) throw error;
    const { text, nbest, cut } = await server.translate(run.name, source, run.nbest, signal);
    const read = cut ? " Only its beginning was translated." : "";
    return { translation: text, nbest, note: `Translated without figures: ${error.message}${read}` };
  }
}

function chosenRuns() {
  return SIDES
    .map((side) => ({ side, run: runOf($(side).value) }))
    .filter(({ run }) => run);
}

// An answer and a panel for each run that is chosen.
function arrange(busy = true) {
  for (const { side, run } of chosenRuns()) {
    if (!page.panels.has(side)) {
      const [answer, element] = [copy("answer"), copy("panel")];
      element.querySelectorAll(".scroll").forEach(watch);
      page.panels.set(side, { name: "", answer, element, chosen: {}, first: null });
    }
    const panel = page.panels.get(side);
    if (panel.name !== run.name) Object.assign(panel, { name: run.name, first: null });
    setBusy(panel, busy);
    panel.answer.querySelector(".name").textContent = run.name;
    panel.element.querySelector("h2").textContent = run.name;
    panel.element.querySelector(".about").textContent = about(run);
  }
  const panels = chosenRuns().map(({ side }) => page.panels.get(side));
  // Those that are there stay: what is open stays open.
  place($("answers"), panels.map((panel) => panel.answer));
  place($("panels"), panels.map((panel) => panel.element));
}

function place(parent, elements) {
  if (elements.some((own, i) => parent.children[i] !== own) || parent.children.length !== elements.length) {
    parent.replaceChildren(...elements);
  }
}

const copy = (template) => $(template).content.firstElementChild.cloneNode(true);

function setBusy(panel, busy) {
  for (const own of [panel.answer, panel.element]) own.setAttribute("aria-busy", busy);
}

function about(run) {
  const reads = run.tree === "none" ? "reads no tree" : `reads ${run.tree} trees`;
  const system = `system ${run.system}, which ${reads}; ${run.checkpoint}`;
  return [languages(run), system].filter(Boolean).join(", ");
}

function fill(panel, run, seen) {
  const { answer, element } = panel;
  const isFirst = panel.first === null;
  panel.first ??= seen.translation;
  answer.querySelector(".fault").hidden = true;
  answer.querySelector(".note").hidden = !seen.note;
  answer.querySelector(".note").textContent = seen.note ?? "";
  element.querySelector(".found").hidden = false;
  const translation = answer.querySelector(".translation");
  translation.lang = run.languages?.target ?? "";
  const differs = seen.translation !== panel.first;
  translation.replaceChildren(...(differs ? marked(seen.translation, panel.first) : [words(seen)]));
  const before = answer.querySelector(".before");
  before.hidden = isFirst || !tree() || tree() === page.parsed;
  const same = run.tree === "none" ? "This run reads no tree." : "The same as before.";
  before.textContent = differs ? `Before: ${panel.first}` : same;
  before.classList.toggle("same", !differs);
  const rows = seen.nbest.map((one) => {
    const row = document.createElement("tr");
    for (const value of [one.text || "(nothing)", one.score.toFixed(3), one.log_p.toFixed(3)]) {
      row.insertCell().textContent = value;
    }
    row.cells[1].className = row.cells[2].className = "figure";
    return row;
  });
  element.querySelector(".others tbody").replaceChildren(...rows);
  element.querySelector(".figures").hidden = !seen.attention;
  if (seen.attention) show(seen, element, panel.chosen);
}

const words = (seen) => document.createTextNode(seen.translation || "(nothing)");

function fault(panel, error) {
  panel.element.querySelector(".found").hidden = true;
  panel.answer.querySelector(".translation").replaceChildren();
  panel.answer.querySelector(".before").hidden = true;
  panel.answer.querySelector(".note").hidden = true;
  const told = panel.answer.querySelector(".fault");
  told.hidden = false;
  told.textContent = error.message;
}

// Words of a text that another has not, in this order, are marked.
function marked(text, before) {
  const [now, old] = [text.split(" "), before.split(" ")];
  const length = now.map(() => old.map(() => 0));
  const longest = (i, j) => length[i]?.[j] ?? 0;
  for (let i = now.length - 1; i >= 0; i -= 1) {
    for (let j = old.length - 1; j >= 0; j -= 1) {
      length[i][j] = now[i] === old[j]
        ? longest(i + 1, j + 1) + 1
        : Math.max(longest(i + 1, j), longest(i, j + 1));
    }
  }
  const nodes = [];
  for (let i = 0, j = 0; i < now.length; i += 1) {
    while (j < old.length && now[i] !== old[j] && longest(i, j + 1) >= longest(i + 1, j)) j += 1;
    const same = j < old.length && now[i] === old[j];
    const node = document.createElement(same ? "span" : "mark");
    node.textContent = now[i];
    nodes.push(node, document.createTextNode(" "));
    if (same) j += 1;
  }
  return nodes;
}

function showTree() {
  const own = tree();
  $("tree").hidden = own === null;
  $("conllu").value = own?.conllu.trimEnd() ?? "";
  if (!own) return;
  const alike = page.parsed.words.length === own.words.length;
  const changed = (word) => alike && own.heads[word] !== page.parsed.heads[word];
  draw($("arcs"), own, { move, say: refuse, changed });
  $("tree-hint").hidden = !own.parsed;
  $("undo").disabled = page.trees.length < 2;
  $("reset").disabled = own === page.parsed;
  const moves = own.moves(page.parsed);
  const count = moves.length;
  page.moves = page.isOwn ? [] : moves;
  remember();
  $("changed").textContent = count ? `${count} ${count === 1 ? "word has" : "words have"} another parent` : "";
  $("parents").querySelector("tbody").replaceChildren(...own.words.map((form, word) => parentRow(own, form, word)));
}

// A move that cannot be; what the last one did not change is of no interest then.
function refuse(sentence) {
  say(sentence, true);
  for (const same of document.querySelectorAll(".before.same")) same.hidden = true;
}

function parentRow(own, form, word) {
  const row = document.createElement("tr");
  const name = document.createElement("th");
  name.scope = "row";
  name.textContent = form;
  const select = document.createElement("select");
  select.setAttribute("aria-label", `Parent of ${form}, word ${word + 1}`);
  const others = own.words.map((_, other) => other).filter((other) => other !== word);
  choose(select, [word, ...others], own.heads[word], (other) =>
    other === word ? "root" : `${other + 1} ${own.words[other]}`);
  for (const option of select.options) option.disabled = own.fault(word, Number(option.value)) !== "";
  select.addEventListener("change", () => {
    move(word, Number(select.value));
    $("parents").querySelectorAll("select")[word].focus();
  });
  row.append(name, document.createElement("td"), document.createElement("td"));
  row.cells[1].append(select);
  row.cells[2].textContent = own.relations[word];
  return row;
}

function remember() {
  const asked = new URLSearchParams({ text: page.text, left: $("left").value, right: $("right").value });
  if (page.moves.length) asked.set("moved", page.moves.join(","));
  history.replaceState(null, "", `?${asked}`);
}

function say(sentence, isFault = false) {
  $("status").textContent = sentence;
  $("status").classList.toggle("fault", isFault);
}

begin();
