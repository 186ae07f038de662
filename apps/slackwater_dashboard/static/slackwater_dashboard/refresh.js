// Lists that stay up to date: cells change in place, what is selected, focused or scrolled to stays; new rows are told, not pushed in.
"use strict";
addEventListener("DOMContentLoaded", () => {
  const list = document.getElementById("result_list");
  if (!list || ![...document.body.classList].some((name) => name.startsWith("app-slackwater"))) return;
  const PERIOD = 10000;
  const note = document.createElement("a");
  note.className = "sw-note";
  note.href = location.href;
  note.hidden = true;
  note.setAttribute("role", "status");
  list.parentElement.before(note);

  const keyOf = (body) => body.querySelector(".action-select")?.value || body.querySelector("a[href]")?.getAttribute("href") || "";
  const byKey = (table) => new Map([...table.tBodies].map((body) => [keyOf(body), body]));
  function inUse(cell) {
    const chosen = getSelection();
    return cell.contains(document.activeElement) || (!chosen.isCollapsed && chosen.containsNode(cell, true));
  }
  function renew(old, next) {
    const fresh = [...next.rows[0].cells];
    [...old.rows[0].cells].forEach((cell, n) => {
      const other = fresh[n];
      if (other && !cell.querySelector(".action-select") && cell.innerHTML !== other.innerHTML && !inUse(cell)) cell.replaceWith(other);
    });
  }
  async function refresh() {
    const answer = await fetch(location.href, { credentials: "same-origin" });
    if (!answer.ok || answer.redirected) return; // logged out: the next click tells
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const next = page.getElementById("result_list");
    const rows = next ? byKey(next) : new Map();
    for (const [key, old] of byKey(list)) {
      const row = rows.get(key);
      old.classList.toggle("sw-gone", !row);
      if (row) renew(old, row);
      rows.delete(key);
    }
    note.hidden = !rows.size;
    note.textContent = `${rows.size} more have come: show them.`;
  }
  setInterval(() => {
    if (!document.hidden) refresh().catch(() => {}); // the server is away: the next look tells
  }, PERIOD);
});
