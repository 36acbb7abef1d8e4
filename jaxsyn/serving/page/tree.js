// A tree as CoNLL-U, of which the parents may be changed and all else stays.

const [ID, FORM, HEAD, RELATION] = [0, 1, 6, 7];

export class Tree {
  // conllu: one sentence, as the server writes it: a row a word.
  constructor(conllu) {
    this.lines = conllu.replace(/\s+$/, "").split("\n");
    this.rows = [];  // line of each word
    this.lines.forEach((line, number) => {
      if (/^\d+\t/.test(line)) this.rows.push(number);
    });
    const columns = this.rows.map((number) => this.lines[number].split("\t"));
    this.words = columns.map((row) => row[FORM]);
    this.relations = columns.map((row) => row[RELATION]);
    // From 0; a root is its own.
    this.heads = columns.map((row, word) => (row[HEAD] === "0" ? word : Number(row[HEAD]) - 1));
    this.parsed = !this.lines.includes("# parsed = no") && columns.length > 0;
  }

  get conllu() {
    return `${this.lines.join("\n")}\n\n`;
  }

  // Why a word cannot have a parent, in a sentence; "" where it can.
  fault(word, parent) {
    for (let above = parent; above !== word; above = this.heads[above]) {
      if (this.heads[above] === above) return "";
    }
    if (parent === word) return "";  // a root
    const [low, high] = [`“${this.words[parent]}”`, `“${this.words[word]}”`];
    return `${low} is below ${high}: that would be a circle. First move ${low} to a word that is `
      + `not below ${high}, or to root.`;
  }

  // The tree with another parent of a word; itself: it is a root.
  moved(word, parent) {
    const other = new Tree(this.conllu);
    const row = other.lines[other.rows[word]].split("\t");
    row[HEAD] = parent === word ? "0" : String(parent + 1);
    if (parent === word) row[RELATION] = "root";
    else if (this.heads[word] === word) row[RELATION] = "dep";  // which, nobody said
    other.lines[other.rows[word]] = row.join("\t");
    return new Tree(other.conllu);
  }

  // Words that have other parents than in another tree of the same words, as "3:1,5:0": word and
  // parent as CoNLL-U numbers them, 0 above a root.
  moves(other) {
    const moved = this.heads.map((head, word) => `${word + 1}:${head === word ? 0 : head + 1}`);
    return moved.filter((_, word) => this.heads[word] !== other.heads[word]);
  }

  // The tree with such moves; null where it would be none.
  led(moves) {
    let tree = this;
    for (const move of moves) {
      const [word, parent] = move.split(":").map((number) => Number(number) - 1);
      if (!(word in this.heads) || !(parent === -1 || parent in this.heads)) return null;
      tree = tree.moved(word, parent === -1 ? word : parent);
    }
    return tree.words.every((_, word) => tree.ends(word)) ? tree : null;
  }

  // Whether the way up from a word comes to a root.
  ends(word) {
    let above = word;
    for (let steps = 0; steps < this.heads.length; steps += 1) above = this.heads[above];
    return this.heads[above] === above;
  }
}
