// A search that stopped before it found anything looks further by itself, until something is found, all is read, or somebody stops it.
"use strict";
addEventListener("DOMContentLoaded", () => {
  const link = () => document.getElementById("sw-further");
  const pages = () => document.querySelector(".sw-pages");
  if (!link() || document.querySelector("#result_list tbody td, #result_list tbody th")) return;
  let stopped = false;
  const note = document.createElement("p");
  note.className = "sw-note";
  note.setAttribute("role", "status");
  const stop = document.createElement("button");
  stop.type = "button";
  stop.className = "sw-button";
  stop.textContent = "Stop";
  stop.addEventListener("click", () => (stopped = true));
  pages().before(note, stop);

  async function look() {
    for (let next = link()?.href; next && !stopped; next = link()?.href) {
      note.textContent = `Nothing yet: ${pages().querySelector("span")?.textContent ?? ""} Looking further…`;
      const answer = await fetch(next, { credentials: "same-origin" });
      if (!answer.ok || answer.redirected) break; // logged out, or stopped by the server: the link tells
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (page.querySelector("#result_list tbody td, #result_list tbody th")) return location.replace(next);
      const fresh = page.querySelector(".sw-pages");
      if (!fresh) break;
      pages().replaceWith(fresh);
    }
    note.textContent = link() ? "Nothing was found so far." : "Nothing was found: all were looked through.";
    stop.remove();
  }
  look().catch(() => stop.remove()); // the server is away: the link is still there
});
