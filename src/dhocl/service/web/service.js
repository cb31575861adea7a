"use strict";
// Requests to the service. Names are untrusted: they are shown by `make` or textContent, never as markup.

const isReplica = document.body.classList.contains("replica");  // it predicts and takes no writes
const at = id => document.getElementById(id);
const pause = ms => new Promise(done => setTimeout(done, ms));
const count = n => n.toLocaleString("en");
const percent = (p, digits = 0) => `${(100 * p).toFixed(digits)}\u00a0%`;

/** An element with properties (`class` and aria-... too) and children: elements, or texts. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** `draw` at most once in so many milliseconds, and not while the page is paused or hidden. */
let paused = false;
const waiting = new Set();
function calm(draw, ms) {
  let due = false, last = -ms;
  const now = () => { due = false; last = performance.now(); draw(); };
  const soon = () => {
    if (paused) return waiting.add(soon);
    if (due) return;
    due = true;
    setTimeout(() => requestAnimationFrame(now), Math.max(0, last + ms - performance.now()));
  };
  return soon;
}

/** An error with a message for the user, and the status of the response, if there was one. */
class Problem extends Error {
  constructor(message, status = null) {
    super(message);
    this.status = status;
  }
}

async function refusal(response) {
  const detail = await response.json().then(body => String(body.detail), () => "");
  const said = detail ? detail[0].toUpperCase() + detail.slice(1) : `The service returned status ${response.status}`;
  const wait = Number(response.headers.get("Retry-After"));
  return new Problem(`${said.replace(/\.$/, "")}.${wait ? ` Try again in ${wait} s.` : ""}`, response.status);
}

// -- the token: requested when it is needed, stored until the tab is closed -------------------------------------------

let wanted = null, declined = false;  // a promise while the dialog is open; whether it was cancelled last time

function wantToken() {
  if (declined) return Promise.resolve(false);
  return wanted ??= new Promise(settle => {
    at("token-why").textContent = sessionStorage.token ? "The token was wrong." : "It is stored until this tab is closed.";
    delete sessionStorage.token;
    const dialog = at("token"), form = dialog.querySelector("form"), word = at("token-word");
    word.value = "";
    const answer = given => {
      if (given) sessionStorage.token = given;
      declined = !given;
      at("give-token").hidden = !declined;
      wanted = dialog.onclose = null;
      dialog.close();
      settle(Boolean(given));
    };
    form.onsubmit = event => {
      event.preventDefault();
      answer(word.value.replace(/[^!-~]/g, ""));  // characters allowed in a header
    };
    at("token-cancel").onclick = () => answer("");
    dialog.onclose = () => answer("");
    dialog.showModal();
  });
}

/** The response; throws a Problem for an error status or a network error. */
async function ask(path, options = {}) {
  const token = sessionStorage.token;
  const headers = token ? { ...options.headers, Authorization: `Bearer ${token}` } : options.headers;
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch {
    throw new Problem("The service can not be reached. Is it still running?");
  }
  if (response.ok) return response;
  const changed = sessionStorage.token !== token;  // another dialog has set it meanwhile
  if (response.status === 401 && (changed || await wantToken())) return ask(path, options);
  throw response.status === 401 ? new Problem("This request needs the token.") : await refusal(response);
}

const read = path => ask(path).then(response => response.json());

const SILENCE = 40_000;  // milliseconds; the service sends a keep-alive every 15 seconds

/** Server-sent events until the connection is lost. EventSource is not used, because it can not send a token. */
async function listen(opened, hear) {
  const line = new AbortController();
  let timer;
  const alive = () => { clearTimeout(timer); timer = setTimeout(() => line.abort(), SILENCE); };
  try {
    alive();
    const response = await ask("/events", { signal: line.signal });
    await opened();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ;) {
      const { value, done } = await reader.read();
      if (done) return;
      alive();
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const event = /^event: (.*)\ndata: (.*)$/.exec(part);
        if (event) hear(event[1], JSON.parse(event[2]));
      }
    }
  } finally {
    clearTimeout(timer);
    line.abort();
  }
}
