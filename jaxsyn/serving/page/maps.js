// Attention maps and the output of modifiers: an overview of heads, and matrices as tables.

const MAX_CELLS = 6000;  // of a table; larger matrices are images
const MEANINGS = {
  weighting: "factor of the scores",
  bias: "added to the scores",
  near: "1 where attention is allowed",
  turned: "what a rotation leaves of the score",
  parse: "probability of being the parent",
};

// result: response of /inspect. panel: element with the places, layers, heads and maps. selection:
// {place, layer, head}, which is updated.
export function showAttention(result, panel, selection) {
  const [place, layer] = [panel.querySelector(".place"), panel.querySelector(".layer")];
  const at = (entries) =>
    entries.filter((entry) => entry.place === selection.place && entry.layer === selection.layer);
  const showHeads = () => {
    Object.assign(selection, { place: place.value, layer: Number(layer.value) });
    const attention = at(result.attention);
    if (!attention.some((entry) => entry.head === selection.head)) selection.head = attention[0].head;
    panel.querySelector(".heads").replaceChildren(...attention.map((entry) =>
      headButton(entry, entry.head === selection.head, () => {
        selection.head = entry.head;
        showHeads();
        panel.querySelector("[aria-pressed=true]").focus();
      })));
    const shown = attention.filter((entry) => entry.head === selection.head);
    const modifiers = at(result.weightings).filter((entry) => entry.heads.includes(selection.head));
    panel.querySelector(".maps").replaceChildren(
      ...shown.map((entry) => figure(entry, `Attention of head ${entry.head}, pooled over words`)),
      ...modifiers.map((entry) => figure(entry, `${entry.part}: ${MEANINGS[entry.kind] ?? entry.kind}`)),
    );
  };
  const showLayers = () => {
    const layers = result.attention.filter((entry) => entry.place === place.value).map((entry) => entry.layer);
    fillSelect(layer, [...new Set(layers)], selection.layer);
    showHeads();
  };
  fillSelect(place, [...new Set(result.attention.map((entry) => entry.place))], selection.place);
  place.onchange = showLayers;
  layer.onchange = showHeads;
  showLayers();
}

// Fills a select with options, of which one is selected, else the first.
export function fillSelect(select, values, selected, name = String) {
  select.replaceChildren(...values.map((value) => new Option(name(value), value)));
  select.value = values.includes(selected) ? selected : values[0];
}

function headButton(entry, pressed, onClick) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "head";
  button.setAttribute("aria-pressed", pressed);
  button.append(image(entry), [`head ${entry.head}`, ...entry.parts].join(" "));
  button.addEventListener("click", onClick);
  return button;
}

function figure(entry, title) {
  const created = document.createElement("figure");
  const caption = document.createElement("figcaption");
  caption.textContent = title;
  const box = document.createElement("div");
  box.className = "scroll";
  box.tabIndex = 0;
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", title);
  box.append(entry.rows.length * entry.columns.length > MAX_CELLS ? image(entry, title) : table(entry));
  created.append(caption, box);
  return created;
}

function table(entry) {
  const created = document.createElement("table");
  created.className = "map";
  const head = created.createTHead().insertRow();
  head.append(document.createElement("td"), ...entry.columns.map((name) => header(name, "col")));
  const body = created.createTBody();
  const max = maximum(entry);
  entry.rows.forEach((name, r) => {
    const row = body.insertRow();
    row.append(header(name, "row"));
    entry.weights[r].forEach((value, c) => {
      const cell = row.insertCell();
      const number = document.createElement("span");
      number.textContent = formatted(value);
      cell.append(number);
      cell.title = `${name} → ${entry.columns[c]}: ${formatted(value)}`;
      cell.style.setProperty("--share", `${Math.round(100 * strength(value, max))}%`);
      cell.classList.toggle("minus", value < 0);
    });
  });
  return created;
}

// Returns a canvas with a pixel per cell; without a title it is decoration.
function image(entry, title = "") {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [entry.columns.length, entry.rows.length];
  const context = canvas.getContext("2d");
  const max = maximum(entry);
  entry.weights.forEach((row, y) => row.forEach((value, x) => {
    context.fillStyle = `rgb(${value < 0 ? "200 90 60" : "59 125 189"} / ${strength(value, max)})`;
    context.fillRect(x, y, 1, 1);
  }));
  canvas.setAttribute("role", title ? "img" : "presentation");
  if (title) canvas.setAttribute("aria-label", `${title}; too large for a table`);
  return canvas;
}

// Attention has a scale from 0 to 1; other matrices one up to their maximum.
function maximum(entry) {
  if ("head" in entry) return 1;
  return entry.weights.flat().reduce((max, value) => Math.max(max, Math.abs(value)), 0) || 1;
}

const strength = (value, max) => Math.min(1, Math.abs(value) / max) ** 0.7;  // null: 0

const formatted = (value) => (value === null ? "−∞" : value.toFixed(2).replace("-", "−"));

function header(name, scope) {
  const cell = document.createElement("th");
  cell.scope = scope;
  const inner = document.createElement("span");
  inner.textContent = name.replaceAll("▁", "_");  // "▁" is a heavy bar
  cell.append(inner);
  return cell;
}
