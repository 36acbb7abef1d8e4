// Languages of runs, in words.

const EXAMPLES = {
  cs: "Dva muži hrají fotbal.",
  de: "Zwei Männer spielen Fußball.",
  en: "Two men play football.",
  fr: "Deux hommes jouent au football.",
};

// As in "en to de"; "" where nobody has said.
export function languages({ languages: { source, target } = {} }) {
  return source && target ? `${source} to ${target}` : "";
}

// What a run wants to be typed.
export function wanted({ languages: { source } = {} }) {
  if (!source) return "A sentence";
  const words = `A sentence in ${inEnglish(source)}`;
  return EXAMPLES[source] ? `${words}, as in: ${EXAMPLES[source]}` : words;
}

function inEnglish(code) {
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code);
  } catch {
    return code;  // no code of a language
  }
}
