// What the server answers: docs/serving.md has the interface.

export class Refused extends Error {}

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
    throw new Refused(`The server answered ${answer.status} without words.`);
  }
  if (!answer.ok) throw new Refused(told.error ?? `The server answered ${answer.status}.`);
  return told;
}
