// A dependency tree in CoNLL-U whose parents can be changed; all other columns stay.

const [ID, FORM, HEAD, RELATION] = [0, 1, 6, 7];

export class Tree {
  // conllu: one sentence.
  constructor(conllu) {
    this.lines = conllu.trimEnd().split("\n").map((line) => line.split("\t"));
    this.rows = this.lines.filter((columns) => /^\d+$/.test(columns[ID]) && columns.length > 1);
    this.words = this.rows.map((columns) => columns[FORM]);
    this.relations = this.rows.map((columns) => columns[RELATION]);
    // Indices from 0; a root is its own parent.
    this.heads = this.rows.map((columns, word) => (columns[HEAD] === "0" ? word : columns[HEAD] - 1));
    this.parsed = this.rows.length > 0 && !this.lines.some(([comment]) => comment === "# parsed = no");
  }

  get conllu() {
    return `${this.lines.map((columns) => columns.join("\t")).join("\n")}\n\n`;
  }

  // Why a word cannot have a parent; "" if it can.
  whyNot(word, parent) {
    if (parent === word) return "";  // a root
    for (let above = parent; above !== word; above = this.heads[above]) {
      if (this.heads[above] === above) return "";
    }
    const [low, high] = [`“${this.words[parent]}”`, `“${this.words[word]}”`];
    return `${low} is below ${high}: this would be a cycle. First move ${low} to a word that is not `
      + `below ${high}, or to root.`;
  }

  // The tree with another parent of a word; the word itself: it is a root.
  withParent(word, parent) {
    const tree = new Tree(this.conllu);
    const columns = tree.rows[word];
    columns[HEAD] = parent === word ? "0" : String(parent + 1);
    if (parent === word) columns[RELATION] = "root";
    else if (this.heads[word] === word) columns[RELATION] = "dep";  // unknown
    return new Tree(tree.conllu);
  }
}
