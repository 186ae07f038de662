// The output of a task: lines are added as they come; the page stays where it is.
"use strict";
(() => {
  const root = document.getElementById("sw-output");
  if (!root) return;
  const [box, filter, said] = [root.querySelector("[role=log]"), root.querySelector("input"), root.querySelector("[data-state]")];
  const PERIOD = 400; // with the worker's fifth of a second, a line is here within a second
  const MOST = 5000; // lines that the page holds
  let place = "";
  let count = 0;

  const shows = (row) => row.hidden = !row.textContent.toLowerCase().includes(filter.value.toLowerCase());
  filter.addEventListener("input", () => [...box.children].forEach(shows));

  function add(lines) {
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    for (const line of lines) {
      const row = document.createElement("div");
      row.className = `sw-line sw-line-${line.level}`;
      const at = line.at ? new Date(line.at).toISOString().slice(11, 19) : "";
      const head = document.createElement("span");
      head.className = "sw-quiet";
      head.title = line.at || "";
      head.textContent = `${at} #${line.attempt ?? "–"} ${line.stream} ${line.level} `;
      row.append(head, line.text);
      shows(row);
      box.append(row);
    }
    while (box.children.length > MOST) box.firstElementChild.remove();
    if (atEnd) box.scrollTop = box.scrollHeight;
  }

  async function look() {
    let pause = PERIOD;
    if (!document.hidden) {
      try {
        const answer = await fetch(`${root.dataset.output}?place=${place}`, { credentials: "same-origin" });
        if (!answer.ok) return; // logged out, or gone: the next click tells
        const now = await answer.json();
        place = now.place;
        count += now.lines.length;
        if (now.lines.length) {
          box.hidden = filter.hidden = false;
          add(now.lines);
        }
        const shown = count > MOST ? `, the last ${MOST} are shown` : "";
        said.textContent = count ? `${count} line${count === 1 ? "" : "s"}${shown}${now.ended ? "" : " so far"}` : now.ended ? "none" : "nothing yet";
        if (now.ended) return;
        if (now.more) pause = 0;
      } catch (error) {
        // the server is away: go on asking
      }
    }
    setTimeout(look, pause);
  }
  look();
})();
