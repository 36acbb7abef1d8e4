// What the server answers: docs/serving.md has the interface.

export class Refused extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

export async function runs() {
  return asked("runs", { method: "GET" });
}

export async function parse(run, text, signal) {
  return posted("parse", { run, text }, signal);
}

// given: {text} or {conllu}.
export async function inspect(run, given, signal) {
  return posted("inspect", { run, ...given }, signal);
}

// The best translations of a sentence, without figures.
export async function translate(run, given, nbest, signal) {
  const told = await posted("translate", { run, nbest, ...given }, signal);
  return told.translations[0];
}

// The state of the server; {} if it does not answer.
export async function health() {
  try {
    return await (await fetch("health")).json();
  } catch {
    return {};
  }
}

function posted(address, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return asked(address, { method: "POST", headers, body: JSON.stringify(body), signal });
}

async function asked(address, options) {
  let answer;
  try {
    answer = await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The server cannot be reached. Is it still running?");
  }
  let told;
  try {
    told = await answer.json();
  } catch {
    throw new Refused(`The server answered ${answer.status} without words.`, answer.status);
  }
  if (!answer.ok) throw new Refused(told.error ?? `The server answered ${answer.status}.`, answer.status);
  return told;
}
