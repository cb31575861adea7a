"use strict";
// Updates by events while connected, else by polling.

const IDLE = 5_000;  // milliseconds without an event after which metrics are requested, because rates decrease over time

let numbers = null, heard = 0;
const soonTree = calm(() => { drawTree(); drawOffer(); }, 400);
const soonNumbers = calm(() => { drawNumbers(numbers); drawRanks(); drawCurve(); }, 400);
const soonConfusions = calm(() => loadConfusions().then(drawConfusions).catch(() => {}), 3000);
const soonRecent = calm(drawRecent, 2500);  // each thumbnail is a request

function show(state, text) {
  at("state").className = state;
  if (at("state-text").textContent !== text) at("state-text").textContent = text;
}

function hearNumbers(news) {
  heard = Date.now();
  numbers = news;
  hearAccuracy(news);
  soonNumbers();
  soonConfusions();
  if (isLabelling()) soonRenew();
}

async function refresh() {
  await catchUp();
  await Promise.all([loadRecent(), read("/metrics").then(hearNumbers)]);
  soonTree();
  soonRecent();
}

async function hear(event, news) {
  if (event === "metrics") hearNumbers(news);
  if (event === "observation") { hearObservation(news); soonRecent(); }
  if (event === "correction") hearCorrection(news);
  if (event === "taxonomy") { await hearTree(news); soonTree(); }
}

async function stayLive() {
  for (let wait = 1000; ; wait = Math.min(30_000, 2 * wait)) {
    try {
      await listen(async () => {
        await refresh();
        show("live", "live");
        wait = 500;
      }, (event, news) => hear(event, news).catch(() => {}));  // missed events are requested later
    } catch { /* shown below */ }
    await refresh().then(() => show("", "not live, polling"),
      problem => show("lost", problem instanceof Problem ? problem.message : "Internal error of this page."));
    await pause(wait);
  }
}

at("pause").onclick = () => {
  paused = !paused;
  at("pause").setAttribute("aria-pressed", paused);
  at("pause").textContent = paused ? "Resume" : "Pause";
  if (!paused) for (const soon of waiting) { waiting.delete(soon); soon(); }
};
at("give-token").onclick = () => { declined = false; wantToken().then(refresh).catch(() => {}); };
at("command").textContent = `curl -F image=@robin.jpg -F name=Erithacus -F rank=genus ${location.origin}/observations`;
setInterval(() => { if (tree.fresh.size) soonTree(); }, 2000);
setInterval(() => { if (Date.now() - heard > IDLE && !document.hidden) read("/metrics").then(hearNumbers).catch(() => {}); }, IDLE);
enterMode();
stayLive();
