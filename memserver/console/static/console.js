// What htmx has no attribute for. No page needs more than this; nothing is loaded from elsewhere.
"use strict";

const root = document.documentElement;

function toggleTheme() {
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  document.cookie = `memserver_theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=lax`;
}

function localTimes(within) {
  const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
  for (const each of within.querySelectorAll("time[datetime]:not([title])")) {
    const moment = new Date(each.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    each.title = each.textContent;
    each.textContent = format.format(moment);
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if ("themeToggle" in button.dataset) toggleTheme();
  if ("dismiss" in button.dataset) button.parentElement.remove();
  if (button.dataset.opens) document.getElementById(button.dataset.opens).showModal();
  if ("closes" in button.dataset) button.closest("dialog").close();
});

document.addEventListener("htmx:load", (event) => {
  localTimes(event.target);
  const wait = document.querySelector("[data-reload-after]");
  if (wait) setTimeout(() => location.reload(), Number(wait.dataset.reloadAfter));
});

// An agent's page

const turns = () => document.getElementById("turns");
let queueStart = 0;
let folds = new Map();

function atEnd(list) {
  return list.scrollHeight - list.scrollTop - list.clientHeight < 160;
}

function toEnd() {
  const list = turns();
  if (list) list.scrollTo({ top: list.scrollHeight, behavior: "instant" });
}

// What has left the window is grey, and a line says where it begins.
function greyEvicted() {
  const list = turns();
  if (!list || !queueStart) return;
  list.querySelector(".boundary")?.remove();
  let last = null;
  for (const each of list.querySelectorAll(".message[data-position]")) {
    const gone = Number(each.dataset.position) < queueStart;
    each.classList.toggle("evicted", gone);
    if (gone) last = each;
  }
  if (!last) return;
  const line = document.createElement("p");
  line.className = "boundary";
  line.textContent = "Above: only in recall storage";
  last.after(line);
}

// Before the memory is drawn again, what was evicted falls out of the queue.
function dropEvicted(event) {
  const shown = document.getElementById("memory");
  if (!shown || event.detail.target !== shown || event.detail.xhr.status !== 200) return;
  if (shown.querySelector("form, .versions, .htmx-request")) {
    event.detail.shouldSwap = false; // a section is being edited, or its history read
    return;
  }
  folds = new Map([...shown.querySelectorAll("details[id]:not(#block-summary)")].map((each) => [each.id, each.open]));
  const found = /data-queue-start="(\d+)"/.exec(event.detail.serverResponse);
  if (!found) return;
  let falling = 0;
  for (const each of shown.querySelectorAll(".queue li")) {
    if (Number(each.dataset.position) >= Number(found[1])) continue;
    each.classList.add("falling");
    falling += 1;
  }
  if (!falling) return;
  document.getElementById("store-recall")?.classList.add("received");
  event.detail.swapOverride = "outerHTML swap:800ms";
}

function refreshMemory() {
  const shown = document.getElementById("memory");
  // Not while a section of it is being edited, or its history read.
  if (shown && !shown.querySelector("form, .versions, .htmx-request")) htmx.trigger(shown, "refresh");
}

document.addEventListener("htmx:beforeSwap", (event) => dropEvicted(event));

document.addEventListener("htmx:load", () => {
  const shown = document.getElementById("memory");
  for (const [id, open] of shown ? folds : []) {
    const each = document.getElementById(id);
    if (each) each.open = open;
  }
  folds.clear();
  if (shown?.dataset.queueStart) queueStart = Number(shown.dataset.queueStart);
  greyEvicted();
});

document.addEventListener("htmx:sseBeforeMessage", () => {
  const list = turns();
  if (list) list.dataset.follow = atEnd(list) ? "yes" : "";
});

document.addEventListener("htmx:sseMessage", (event) => {
  if (turns()?.dataset.follow) toEnd();
  if (event.detail.type === "step") refreshMemory();
});

// After a turn a job may still evict.
document.addEventListener("htmx:sseClose", () => {
  for (const wait of [0, 1500, 5000]) setTimeout(refreshMemory, wait);
});

document.addEventListener("htmx:configRequest", (event) => {
  if (!("newer" in event.target.dataset)) return;
  const all = document.querySelectorAll(".turn");
  const last = all[all.length - 1];
  if (document.hidden || last?.querySelector(".working")) event.preventDefault();
  event.detail.parameters.after = last ? last.dataset.turn : 0;
});

document.addEventListener("htmx:afterRequest", (event) => {
  if (event.target.id !== "composer" || !event.detail.successful) return;
  event.target.reset();
  document.querySelector("#turns > [data-once]")?.remove();
  toEnd();
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  if (!("enterSends" in event.target.dataset)) return;
  event.preventDefault();
  event.target.form.requestSubmit();
});

document.addEventListener("click", (event) => {
  const tab = event.target.closest("[data-tab]");
  if (tab) {
    for (const each of document.querySelectorAll(".tabs [data-tab]")) {
      if (each.dataset.tab === tab.dataset.tab) each.setAttribute("aria-current", "true");
      else each.removeAttribute("aria-current");
    }
  }
  for (const menu of document.querySelectorAll(".menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});

addEventListener("DOMContentLoaded", () => {
  localTimes(document);
  toEnd();
});

document.addEventListener("htmx:sendError", () => {
  const notice = document.getElementById("notice");
  const box = document.createElement("div");
  box.className = "notice";
  box.textContent = "The server can't be reached. Try again in a moment.";
  notice.replaceChildren(box);
});
