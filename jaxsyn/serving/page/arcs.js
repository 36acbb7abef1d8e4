// A tree as arcs over its words. An arc is taken by its dot, or anywhere, and led to
// another word, or to the root's line above.

const SPACE = "http://www.w3.org/2000/svg";
const FONT = "16px system-ui, sans-serif";
const SMALL = "12px system-ui, sans-serif";
const [STEP, TOP, GAP, SIDE, ROUND, DOT, REACH] = [26, 30, 22, 12, 8, 5, 12];

const pen = document.createElement("canvas").getContext("2d");

// box: the element that scrolls. move(word, parent): what to do when an arc was led there.
// say(sentence): tells why it cannot. changed(word): whether its arc was moved before.
export function draw(box, tree, { move, say, changed }) {
  const arcs = arcsOf(tree);
  const levels = levelsOf(arcs);
  const x = positions(tree, arcs);
  const base = TOP + STEP * (Math.max(0, ...levels) + 1);
  const width = x.length ? x.at(-1) + widthOf(tree.words.at(-1), FONT) / 2 + SIDE : 100;
  const svg = made("svg", { width, height: base + 30, viewBox: `0 0 ${width} ${base + 30}`, role: "img" });
  svg.setAttribute("aria-label", inWords(tree));
  svg.append(
    made("line", { class: "roots", x1: 0, x2: width, y1: TOP - 8, y2: TOP - 8 }),
    text("root", 4, TOP - 14, { class: "label start" }),
  );
  const word = tree.words.map((form, i) => text(form, x[i], base + 18, { class: "word" }));
  svg.append(...word);
  const labels = [];  // in front of all lines, which would run through them
  const ends = endsOf(tree, arcs, x);
  const drag = new Drag(box, svg, { tree, x, base, word, move, say });
  arcs.forEach((arc, number) => {
    const { from, to } = ends[number];
    const y = base - STEP * levels[number];
    const path = arch(from, to, y, base - 2);
    labels.push(labelled(tree.relations[arc.child], (from + to) / 2, y - 4));
    svg.append(drawn(arc.child, path, { x: from, y: base - 2 }, changed(arc.child), drag, { x: to, y: base - 2 }));
  });
  tree.heads.forEach((head, child) => {
    if (head !== child || !tree.parsed) return;
    const path = `M${x[child]} ${TOP - 8}V${base - 2}`;
    svg.append(drawn(child, path, { x: x[child], y: TOP - 8 }, changed(child), drag, { x: x[child], y: base - 2 }));
  });
  svg.append(...labels);
  box.replaceChildren(svg);
  rest(box);
}

// What lies under a mouse that rests is not pointed at.
function rest(box) {
  box.classList.add("rests");
  box.onpointermove = ({ movementX, movementY }) => {
    if (movementX || movementY) box.classList.remove("rests");
  };
}

function labelled(relation, x, y) {
  const [group, width] = [made("g", { class: "label" }), widthOf(relation, SMALL) + 6];
  group.append(
    made("rect", { x: x - width / 2, y: y - 11, width, height: 14 }),
    text(relation, x, y, { class: "label" }),
  );
  return group;
}

function drawn(child, path, dot, changed, drag, tip) {
  const group = made("g", { class: changed ? "arc changed" : "arc", "data-child": child });
  group.append(
    made("path", { class: "line", d: path }),
    made("path", { class: "tip", d: `M${tip.x} ${tip.y}l-4 -7h8z` }),
    made("path", { class: "hold", d: path }),
    made("circle", { class: "dot", cx: dot.x, cy: dot.y, r: DOT }),
    made("circle", { class: "hold", cx: dot.x, cy: dot.y, r: REACH }),
  );
  drag.arcs.push({ child, group, dot, tip });
  return group;
}

class Drag {
  constructor(box, svg, told) {
    Object.assign(this, { box, svg, arcs: [] }, told);
    svg.addEventListener("pointerdown", (event) => {
      const taken = event.button ? null : this.taken(event);
      if (taken) this.begin(event, taken);
    });
  }

  // Dots stand close together: the nearest is meant, and not the one drawn last.
  taken(event) {
    const { x, y } = this.point(event);
    const far = ({ dot }) => Math.hypot(dot.x - x, dot.y - y);
    const nearest = this.arcs.reduce((one, other) => (far(other) < far(one) ? other : one), this.arcs[0]);
    if (nearest && far(nearest) <= REACH) return nearest;
    return this.arcs.find(({ group }) => group.contains(event.target));
  }

  begin(event, { child, group, tip }) {
    event.preventDefault();
    group.setPointerCapture(event.pointerId);
    group.classList.add("held");
    const line = made("path", { class: "led" });
    this.svg.append(line);
    const end = new AbortController();
    const finish = (target) => {
      end.abort();
      line.remove();
      group.classList.remove("held");
      this.mark(null);
      if (target === null || target === undefined) return;
      const fault = this.tree.fault(child, target);
      if (fault) this.say(fault);
      else if (target !== this.tree.heads[child]) this.move(child, target);
    };
    const led = (moved) => {
      const point = this.point(moved);
      const target = this.target(point, child);
      this.mark(target, child);
      line.setAttribute("d", `M${point.x} ${point.y}L${tip.x} ${tip.y}`);
      this.follow(moved);
      return target;
    };
    const options = { signal: end.signal };
    group.addEventListener("pointermove", led, options);
    group.addEventListener("pointerup", (up) => finish(led(up)), options);
    group.addEventListener("pointercancel", () => finish(null), options);
    addEventListener("keydown", (key) => key.key === "Escape" && finish(null), options);
  }

  point(event) {
    const place = this.svg.getBoundingClientRect();
    return { x: event.clientX - place.left, y: event.clientY - place.top };
  }

  // The word that is meant, the child itself for the root; null: none.
  target({ x, y }, child) {
    if (y < TOP) return child;
    if (y < this.base - 2.5 * STEP && y < this.base / 2) return null;
    let nearest = 0;
    this.x.forEach((own, i) => {
      if (Math.abs(own - x) < Math.abs(this.x[nearest] - x)) nearest = i;
    });
    return nearest === child ? null : nearest;
  }

  mark(target, child) {
    this.svg.classList.toggle("to-root", target !== null && target === child);
    this.word.forEach((word, i) => {
      const here = i === target && target !== child;
      word.classList.toggle("target", here);
      word.classList.toggle("refused", here && this.tree.fault(child, target) !== "");
    });
  }

  // Wide trees scroll along.
  follow(event) {
    const place = this.box.getBoundingClientRect();
    if (event.clientX > place.right - 30) this.box.scrollLeft += 12;
    if (event.clientX < place.left + 30) this.box.scrollLeft -= 12;
  }
}

function arcsOf(tree) {
  if (!tree.parsed) return [];
  return tree.heads
    .map((parent, child) => ({ child, parent, low: Math.min(child, parent), high: Math.max(child, parent) }))
    .filter(({ child, parent }) => child !== parent);
}

// From 1; an arc is above all that it spans.
function levelsOf(arcs) {
  const order = arcs.map((_, i) => i).sort((a, b) => size(arcs[a]) - size(arcs[b]));
  const level = arcs.map(() => 0);
  for (const own of order) {
    const below = order.filter((i) => level[i] && arcs[i].low < arcs[own].high && arcs[own].low < arcs[i].high);
    level[own] = 1 + Math.max(0, ...below.map((i) => level[i]));
  }
  return level;
}

const size = (arc) => arc.high - arc.low;

// Middles of the words; neighbours with an arc between them have room for its label.
function positions(tree, arcs) {
  const needed = new Map();
  for (const { low, high, child } of arcs) {
    if (high === low + 1) needed.set(low, widthOf(tree.relations[child], SMALL) + GAP);
  }
  const x = [];
  tree.words.forEach((form, i) => {
    const half = widthOf(form, FONT) / 2;
    if (!i) return x.push(SIDE + Math.max(half, 20));
    const before = widthOf(tree.words[i - 1], FONT) / 2;
    return x.push(x[i - 1] + Math.max(before + half + GAP, needed.get(i - 1) ?? 0, 44));
  });
  return x;
}

// Where arcs stand on their words: a child's in the middle, its own children's beside it,
// the longest next to it.
function endsOf(tree, arcs, x) {
  const at = arcs.map(({ child }) => ({ from: 0, to: x[child] }));
  tree.words.forEach((_, word) => {
    for (const side of [-1, 1]) {
      const own = arcs
        .map((arc, i) => ({ arc, i }))
        .filter(({ arc }) => arc.parent === word && Math.sign(arc.child - word) === side)
        .sort((a, b) => size(b.arc) - size(a.arc));
      const room = Math.min(11, Math.max(8, widthOf(tree.words[word], FONT) / 2 / own.length));
      own.forEach(({ i }, place) => {
        at[i].from = x[word] + side * (place + 1) * room;
      });
    }
  });
  return at;
}

function arch(from, to, y, base) {
  const side = to > from ? 1 : -1;
  const round = Math.min(ROUND, Math.abs(to - from) / 2);
  return `M${from} ${base}V${y + round}Q${from} ${y} ${from + side * round} ${y}`
    + `H${to - side * round}Q${to} ${y} ${to} ${y + round}V${base}`;
}

function inWords(tree) {
  if (!tree.parsed) return "The parser could not read this line.";
  const said = tree.heads.map((head, i) => {
    const above = head === i ? "root" : `parent ${tree.words[head]}, ${tree.relations[i]}`;
    return `${tree.words[i]}: ${above}`;
  });
  return `Tree. ${said.join("; ")}.`;
}

function widthOf(form, font) {
  pen.font = font;
  return pen.measureText(form).width;
}

function made(name, attributes = {}) {
  const element = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function text(content, x, y, attributes) {
  const element = made("text", { x, y, ...attributes });
  element.textContent = content;
  return element;
}
