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

document.addEventListener("htmx:sendError", () => {
  const notice = document.getElementById("notice");
  const box = document.createElement("div");
  box.className = "notice";
  box.textContent = "The server can't be reached. Try again in a moment.";
  notice.replaceChildren(box);
});
