// Keeps the page up to date: the server sends the elements that changed, and each becomes what it is now. What has the
// focus keeps it, and what is scrolled or open stays so. Without this script the page is a document.
"use strict";

const live = document.body.dataset.live;
let rev = document.body.dataset.rev;
let stream = null;
let ended = false; // fencectl said so: whoever has its port later is somebody else
let lost = null; // since when fencectl does not answer

// become makes element a what b is, and touches nothing that is the same.
function become(a, b) {
  if (a.nodeType !== b.nodeType || a.nodeName !== b.nodeName || (a.id || "") !== (b.id || "")) {
    a.replaceWith(b);
    return;
  }
  if (a.nodeType !== Node.ELEMENT_NODE) {
    if (a.nodeValue !== b.nodeValue) a.nodeValue = b.nodeValue;
    return;
  }
  const open = a.nodeName === "DETAILS" && a.open;
  for (const name of a.getAttributeNames()) {
    if (!b.hasAttribute(name) && name !== "data-age") a.removeAttribute(name);
  }
  for (const name of b.getAttributeNames()) {
    if (a.getAttribute(name) !== b.getAttribute(name)) a.setAttribute(name, b.getAttribute(name));
  }
  if (open) a.open = true;
  const known = new Map();
  for (const child of a.children) if (child.id) known.set(child.id, child);
  let at = a.firstChild;
  for (const want of [...b.childNodes]) {
    const same = want.id && known.get(want.id);
    if (same) {
      if (same === at) at = at.nextSibling;
      else a.insertBefore(same, at);
      become(same, want);
    } else if (at && !at.id && !want.id && at.nodeName === want.nodeName) {
      const child = at;
      at = at.nextSibling;
      become(child, want);
    } else {
      a.insertBefore(want, at);
    }
  }
  while (at) {
    const child = at;
    at = at.nextSibling;
    child.remove();
  }
}

// apply takes in what changed, and tells a screen reader what matters.
function apply(changes) {
  const said = new Map();
  for (const e of document.querySelectorAll("[data-say]")) said.set(e.id, e.dataset.say);
  for (const change of changes) {
    const old = document.getElementById(change.id);
    if (!old) continue;
    const holder = document.createElement("template");
    holder.innerHTML = change.html;
    if (holder.content.firstElementChild) become(old, holder.content.firstElementChild);
  }
  const news = [];
  for (const e of document.querySelectorAll("[data-say]")) if (said.get(e.id) !== e.dataset.say) news.push(e.dataset.say);
  if (news.length) document.getElementById("say").textContent = news.join(" ");
  find();
  tick();
}

// find hides the Nodes of the map that lack a word of what is looked for: in the name, the state, the check, the BMC.
function find() {
  const field = document.getElementById("find");
  const zones = document.getElementById("zones");
  if (!field || !zones) return;
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length && !zones.classList.contains("filtered")) return;
  let found = 0;
  for (const cell of zones.querySelectorAll("ul.cells > li")) {
    const text = (cell.textContent + " " + (cell.firstElementChild.getAttribute("aria-label") || "")).toLowerCase();
    cell.hidden = !words.every((word) => text.includes(word));
    if (!cell.hidden) found++;
  }
  zones.classList.toggle("filtered", words.length > 0);
  document.getElementById("found").textContent = words.length ? found + " found" : "";
}

// link shows whether fencectl answers; whether fenced does, the server tells.
function link(text) {
  const e = document.getElementById("link");
  e.innerHTML = '<span class="tag bad"></span> <span></span>';
  e.firstElementChild.textContent = "not live";
  e.lastElementChild.textContent = text;
  document.getElementById("say").textContent = text;
}

function connect() {
  if (stream || ended || !live) return;
  const address = new URL(live, location.href);
  address.searchParams.set("rev", rev);
  stream = new EventSource(address);
  stream.onopen = () => (lost = null);
  stream.onmessage = (e) => {
    rev = e.lastEventId;
    apply(JSON.parse(e.data));
  };
  stream.addEventListener("end", () => {
    ended = true;
    stream.close();
    link("fencectl ui has ended.");
  });
  stream.onerror = () => {
    if (stream.readyState === EventSource.CLOSED) {
      link("fencectl ui refuses more. Load the page again.");
    } else if (!lost) {
      lost = new Date();
      link("fencectl ui does not answer since " + lost.toISOString().slice(0, 19).replace("T", " ") + " UTC.");
    }
  };
}

function disconnect() {
  if (stream) stream.close();
  stream = null;
}

// span writes seconds as people say them.
function span(seconds) {
  const s = Math.round(seconds);
  if (s < 120) return s + " s";
  if (s < 7200) return Math.floor(s / 60) + " min";
  if (s < 172800) return Math.floor(s / 3600) + " h";
  return Math.floor(s / 86400) + " days";
}

// tick writes how long ago each time was, and moves the bars of open steps.
function tick() {
  const now = Date.now() / 1000;
  for (const e of document.getElementsByTagName("time")) {
    const ago = now - Date.parse(e.dateTime) / 1000;
    const text = ago < 0 ? "in " + span(-ago) : span(ago) + " ago";
    if (e.dataset.age !== text) e.dataset.age = text;
  }
  for (const e of document.getElementsByTagName("progress")) e.value = Math.max(0, now - e.dataset.from);
}

// tell shows the words of a cell of the map, for the eye as for the ear.
function tell(e) {
  const cell = e.target.closest && e.target.closest("a.c");
  if (cell) document.getElementById("tip").textContent = cell.getAttribute("aria-label");
}

document.documentElement.classList.add("js");
document.addEventListener("input", (e) => e.target.id === "find" && find());
document.addEventListener("mouseover", tell);
document.addEventListener("focusin", tell);
// A browser has few connections for one host: a tab that nobody sees gives its own back.
document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
window.addEventListener("pagehide", disconnect);
window.addEventListener("pageshow", connect);
setInterval(tick, 1000);
tick();
connect();
