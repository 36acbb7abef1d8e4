// A tree as arcs above its words. A word is dragged to its new parent, or to the root line.

const FONT = "16px system-ui, sans-serif";
const SMALL = "12px system-ui, sans-serif";
const [STEP, TOP, GAP, ROUND] = [26, 30, 22, 8];
const context = document.createElement("canvas").getContext("2d");

// box: element for the drawing. onMove(word, parent): called after a drag. isChanged(word):
// whether its parent differs from the original tree's.
export function draw(box, tree, onMove, isChanged) {
  const arcs = tree.parsed ? arcsOf(tree) : [];
  const x = positions(tree, arcs);
  const base = TOP + STEP * (Math.max(0, ...arcs.map((arc) => arc.level)) + 1);
  const width = x.at(-1) + widthOf(tree.words.at(-1), FONT) / 2 + GAP;
  const svg = element("svg", { width, height: base + 30, role: "img", "aria-label": description(tree) });
  svg.append(
    element("line", { class: "roots", x1: 0, x2: width, y1: TOP - 8, y2: TOP - 8 }),
    text("root", 20, TOP - 14, "label"),
  );
  for (const { child, parent, level } of arcs) {
    const from = x[parent] + (child > parent ? 7 : -7);
    const y = parent === child ? TOP - 8 : base - STEP * level;
    const path = parent === child ? `M${x[child]} ${y}V${base}` : arch(from, x[child], y, base);
    const group = element("g", { class: isChanged(child) ? "arc changed" : "arc" });
    group.append(
      element("path", { d: path }),
      element("path", { class: "tip", d: `M${x[child]} ${base}l-4 -7h8z` }),
    );
    svg.append(group);
  }
  for (const { child, parent, level } of arcs) {  // in front of all lines
    if (child !== parent) svg.append(label(tree.relations[child], (x[child] + x[parent]) / 2, base - STEP * level));
  }
  const words = tree.words.map((form, i) => text(form, x[i], base + 18, "word"));
  svg.append(...words);
  box.replaceChildren(svg);
  if (tree.parsed) words.forEach((_, word) => enableDrag({ box, svg, tree, words, word, x, base, onMove }));
}

function enableDrag({ box, svg, tree, words, word, x, base, onMove }) {
  const line = element("path", { class: "drag" });
  let target = null;  // the word itself: root
  const point = (event) => {
    const { left, top } = svg.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  };
  const mark = () => {
    svg.classList.toggle("to-root", target === word);
    words.forEach((other, i) => {
      other.classList.toggle("target", i === target && i !== word);
      other.classList.toggle("rejected", i === target && tree.whyNot(word, i) !== "");
    });
  };
  const drag = (event) => {
    const [px, py] = point(event);
    const nearest = x.reduce((best, at, i) => (Math.abs(at - px) < Math.abs(x[best] - px) ? i : best), 0);
    target = py < TOP ? word : py > base - STEP && nearest !== word ? nearest : null;
    line.setAttribute("d", `M${x[word]} ${base}L${px} ${py}`);
    mark();
    const { left, right } = box.getBoundingClientRect();
    if (event.clientX > right - 30) box.scrollLeft += 12;
    if (event.clientX < left + 30) box.scrollLeft -= 12;
  };
  const end = (event) => {
    words[word].onpointermove = words[word].onpointerup = words[word].onpointercancel = null;
    line.remove();
    const parent = event.type === "pointerup" ? target : null;
    target = null;
    mark();
    if (parent !== null && parent !== tree.heads[word]) onMove(word, parent);
  };
  words[word].onpointerdown = (event) => {
    event.preventDefault();
    words[word].setPointerCapture(event.pointerId);
    svg.append(line);
    drag(event);
    Object.assign(words[word], { onpointermove: drag, onpointerup: end, onpointercancel: end });
  };
}

// Arcs with levels from 1; an arc is above all arcs that it spans.
function arcsOf(tree) {
  const arcs = tree.heads.map((parent, child) =>
    ({ child, parent, low: Math.min(child, parent), high: Math.max(child, parent), level: 0 }));
  const order = arcs.filter((arc) => arc.low < arc.high).sort((a, b) => a.high - a.low - b.high + b.low);
  for (const arc of order) {
    const below = order.filter((other) => other.low < arc.high && arc.low < other.high);
    arc.level = 1 + Math.max(...below.map((other) => other.level));
  }
  return arcs;
}

// Middles of the words, with space for the labels of arcs between neighbors.
function positions(tree, arcs) {
  const x = [];
  tree.words.forEach((form, i) => {
    const half = widthOf(form, FONT) / 2;
    if (i === 0) return x.push(GAP + Math.max(half, 20));
    const before = widthOf(tree.words[i - 1], FONT) / 2;
    const labels = arcs.filter((arc) => arc.low === i - 1 && arc.high === i);
    const widths = labels.map((arc) => widthOf(tree.relations[arc.child], SMALL) + GAP);
    return x.push(x[i - 1] + Math.max(before + half + GAP, 44, ...widths));
  });
  return x;
}

function arch(from, to, y, base) {
  const side = to > from ? 1 : -1;
  const round = Math.min(ROUND, Math.abs(to - from) / 2);
  return `M${from} ${base}V${y + round}Q${from} ${y} ${from + side * round} ${y}`
    + `H${to - side * round}Q${to} ${y} ${to} ${y + round}V${base}`;
}

function label(relation, x, y) {
  const width = widthOf(relation, SMALL) + 6;
  const group = element("g", { class: "label" });
  group.append(
    element("rect", { x: x - width / 2, y: y - 8, width, height: 14 }),
    text(relation, x, y + 4, "label"),
  );
  return group;
}

function description(tree) {
  if (!tree.parsed) return "The parser could not parse this sentence.";
  const parents = tree.heads.map((head, i) =>
    `${tree.words[i]}: ${head === i ? "root" : `parent ${tree.words[head]}, ${tree.relations[i]}`}`);
  return `Tree. ${parents.join("; ")}.`;
}

function widthOf(form, font) {
  context.font = font;
  return context.measureText(form).width;
}

function element(name, attributes) {
  const created = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
  return created;
}

function text(content, x, y, kind) {
  const created = element("text", { x, y, class: kind });
  created.textContent = content;
  return created;
}
