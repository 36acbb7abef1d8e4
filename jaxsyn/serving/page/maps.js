// Attention and what parts make of it: an overview of heads, and matrices as tables.

import { watch } from "./edges.js";

const MOST = 6000;  // cells of a table; larger ones are pictures

const MEANINGS = {
  weight: "attention",
  weighting: "times the scores",
  bias: "added to the scores",
  near: "who is looked at",
  heard: "how open gates are",
  turned: "what a turn leaves of the score",
  parse: "how likely each is the parent",
};

// seen: of the server. panel: the element with place, layer, heads and maps in it.
export function show(seen, panel, chosen) {
  const [place, layer] = [panel.querySelector(".place"), panel.querySelector(".layer")];
  const places = unique(seen.attention.map((one) => one.place));
  choose(place, places, chosen.place ?? "encoder");
  const update = () => {
    const layers = unique(seen.attention.filter((one) => one.place === place.value).map((one) => one.layer));
    choose(layer, layers, chosen.layer ?? layers[0]);
    heads();
  };
  const heads = () => {
    Object.assign(chosen, { place: place.value, layer: Number(layer.value) });
    const own = at(seen.attention, chosen);
    if (!own.some((one) => one.head === chosen.head)) chosen.head = own[0]?.head ?? 0;
    const buttons = own.map((one) => button(one, chosen.head === one.head, () => {
      chosen.head = one.head;
      for (const other of buttons) other.setAttribute("aria-pressed", other === buttons[own.indexOf(one)]);
      matrices(seen, panel, chosen);
    }));
    panel.querySelector(".heads").replaceChildren(...buttons);
    matrices(seen, panel, chosen);
  };
  place.onchange = update;
  layer.onchange = heads;
  update();
}

function matrices(seen, panel, chosen) {
  const attention = at(seen.attention, chosen).filter((one) => one.head === chosen.head);
  const weightings = at(seen.weightings, chosen).filter((one) => one.heads.includes(chosen.head));
  const figures = attention.map((one) =>
    figure(one, `Attention of head ${one.head}`, "of words, their subwords pooled"));
  for (const one of weightings) {
    const shared = one.heads.length > 1 ? "the same for several heads" : `of head ${chosen.head}`;
    figures.push(figure(one, `${one.part}: ${MEANINGS[one.kind] ?? one.kind}`, `of subwords, ${shared}`));
  }
  if (!weightings.length) {
    const none = document.createElement("p");
    none.className = "soft";
    none.textContent = "No part of the system changes this head.";
    figures.push(none);
  }
  panel.querySelector(".maps").replaceChildren(...figures);
}

function at(entries, { place, layer }) {
  return entries.filter((one) => one.place === place && one.layer === layer);
}

function button(one, pressed, press) {
  const element = document.createElement("button");
  element.type = "button";
  element.className = "head";
  element.setAttribute("aria-pressed", pressed);
  const name = document.createElement("span");
  name.textContent = [`head ${one.head}`, ...one.parts].join(" ");
  element.append(picture(one, scale(one)), name);
  element.addEventListener("click", press);
  return element;
}

function figure(one, title, note) {
  const element = document.createElement("figure");
  const range = scale(one);
  const caption = document.createElement("figcaption");
  const name = document.createElement("b");
  name.textContent = title;
  const soft = document.createElement("span");
  soft.className = "soft";
  soft.textContent = ` ${note}; ${said(range.low)} to ${said(range.high)}`;
  caption.append(name, soft);
  const box = document.createElement("div");
  box.className = "scroll";
  box.tabIndex = 0;
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", title);
  const told = document.createElement("output");
  told.textContent = "\u00a0";
  const large = one.rows.length * one.columns.length > MOST;
  if (large) element.className = "large";
  watch(box);
  box.append(large ? picture(one, range, title) : table(one, range, title, told));
  element.append(caption, box, told);
  return element;
}

function table(one, range, title, told) {
  const element = document.createElement("table");
  element.className = "map";
  // By these style.css chooses how large a cell is.
  element.style.setProperty("--columns", one.columns.length);
  element.style.setProperty("--letters", Math.max(...one.rows.map((name) => name.length)));
  const head = element.createTHead().insertRow();
  const corner = document.createElement("td");
  head.append(corner, ...one.columns.map((name) => cell("th", name, "col")));
  const body = element.createTBody();
  one.rows.forEach((name, r) => {
    const row = body.insertRow();
    row.append(cell("th", name, "row"));
    one.weights[r].forEach((value, c) => {
      const own = row.insertCell();
      const number = document.createElement("span");
      number.textContent = said(value);
      own.append(number);
      const { share, minus } = strength(value, range);
      own.style.setProperty("--share", `${Math.round(100 * share)}%`);
      if (minus) own.className = "minus";
      own.addEventListener("pointerenter", () => {
        told.textContent = `${name} → ${one.columns[c]}: ${said(value)}`;
      });
    });
  });
  return element;
}

function picture(one, range, title) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [one.columns.length, one.rows.length];
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(canvas.width, canvas.height);
  one.weights.flat().forEach((value, i) => {
    const { share, minus } = strength(value, range);
    image.data.set([...(minus ? [200, 90, 60] : [59, 125, 189]), Math.round(255 * share)], 4 * i);
  });
  pen.putImageData(image, 0, 0);
  if (title) {
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${title}, too large for a table`);
  } else {
    canvas.setAttribute("aria-hidden", "true");
  }
  return canvas;
}

// Attention is from 0 to 1 everywhere; others by their own largest.
function scale(one) {
  let [low, high] = [0, 0];
  for (const value of one.weights.flat()) {
    if (value !== null) [low, high] = [Math.min(low, value), Math.max(high, value)];
  }
  return { low, high, unit: "head" in one ? 1 : Math.max(-low, high) || 1 };
}

function strength(value, { unit }) {
  if (value === null) return { share: 0, minus: false };
  return { share: Math.min(1, Math.abs(value) / unit) ** 0.7, minus: value < 0 };
}

function said(value) {
  return value === null ? "−∞" : value.toFixed(2).replace("-", "−");
}

function cell(kind, content, scope) {
  const element = document.createElement(kind);
  element.scope = scope;
  const inner = document.createElement("span");
  // "▁" stands where a word begins; as a letter it is a heavy bar.
  content.split("▁").forEach((piece, i) => {
    if (i) inner.append(beginning());
    inner.append(piece);
  });
  element.append(inner);
  return element;
}

function beginning() {
  const mark = document.createElement("i");
  mark.className = "beginning";
  mark.textContent = "_";
  return mark;
}

export function choose(select, values, wanted, name = String) {
  const options = values.map((value) => {
    const option = document.createElement("option");
    option.value = String(value);
    option.textContent = name(value);
    return option;
  });
  select.replaceChildren(...options);
  select.value = values.includes(wanted) ? String(wanted) : String(values[0] ?? "");
}

const unique = (values) => [...new Set(values)];
