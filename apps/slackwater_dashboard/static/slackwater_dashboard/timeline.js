// The timeline of a workflow: how long each task waited, each of its attempts, and the path that decided the end.
// Only the rows in sight are in the page, so that many thousands scroll as a few do.
"use strict";
(() => {
  const part = document.getElementById("sw-flow-time");
  if (!part) return;
  const [ROW, SPARE, EACH, TICKS] = [26, 6, 200, 6];
  const [by, only, span, axis, box, inner, sum] = ["by", "critical", "span", "axis", "rows", "inner", "sum"].map((name) => part.querySelector(`[data-${name}]`));
  const opened = new Set();
  let [flow, rows, from, until, zoomed] = [null, [], 0, 1, false];

  // -- rows -----------------------------------------------------------------------------------------------------
  const begin = (task) => (task.attempts.length ? task.attempts[0][0] : task.end ?? task.free);
  const end = (task) => task.end ?? (task.attempts.length || task.state !== "blocked" ? flow.now : task.free);
  const sooner = (a, b) => begin(a) - begin(b) || a.n - b.n;
  function order() {
    const chosen = (task) => !only.checked || flow.critical.has(task.n);
    if (by.value === "task") rows = flow.tasks.filter(chosen).sort(sooner).map((task) => ({ task }));
    else
      rows = SW.groups(by.value)
        .map((group) => ({ ...group, tasks: group.tasks.filter(chosen).sort(sooner) }))
        .filter((group) => group.tasks.length)
        .sort((a, b) => sooner(a.tasks[0], b.tasks[0]))
        .flatMap((group) => [{ group }, ...(opened.has(group.key) ? group.tasks.map((task) => ({ task, inside: true })) : [])]);
    inner.style.height = `${rows.length * ROW}px`;
  }

  // -- bars -----------------------------------------------------------------------------------------------------
  const place = (ms) => (100 * (ms - from)) / (until - from);
  function bar(a, b, kind, title) {
    const [left, right] = [Math.max(0, place(a)), Math.min(100, place(b))];
    if (right < 0 || left > 100) return null;
    const made = SW.el("span", { class: `sw-span ${kind}`, title });
    made.style.left = `${left}%`;
    made.style.width = `max(2px, ${Math.max(0, right - left)}%)`;
    return made;
  }
  const KINDS = { succeeded: "succeeded", running: "running", retry: "scheduled", yielded: "scheduled", preempted: "scheduled", cancelled: "cancelled" };
  function bars(task) {
    const found = [];
    const first = task.attempts.length ? task.attempts[0][0] : end(task);
    if (task.free > 0) found.push(bar(0, task.free, "sw-span-held", `held by what it needs, or until its time, for ${SW.took(task.free)}`));
    if (task.state !== "blocked" && first > task.free) found.push(bar(task.free, first, "sw-span-waits", `waited ${SW.took(first - task.free)}`));
    task.attempts.forEach(([began, ended, outcome], n) => {
      const before = n && task.attempts[n - 1][1];
      if (n && began > before) found.push(bar(before, began, "sw-span-waits", `waited ${SW.took(began - before)} after attempt ${n}`));
      const words = `attempt ${n + 1} ${outcome.replace("_", " ")} after ${SW.took((ended ?? flow.now) - began)}`;
      found.push(bar(began, ended ?? flow.now, `sw-span-ran sw-${KINDS[outcome] || "failed"}${flow.critical.has(task.n) ? " sw-span-critical" : ""}`, words));
    });
    return found;
  }
  // All runs of a group: where they overlap it is one bar, darker the more run at once.
  function density(group) {
    const runs = group.tasks.flatMap((task) => task.attempts.map(([a, b]) => [Math.max(a, from), Math.min(b ?? flow.now, until)])).filter(([a, b]) => b >= a);
    const [parts, step] = [120, (until - from) / 120];
    const count = new Array(parts).fill(0);
    for (const [a, b] of runs) for (let n = Math.max(0, Math.floor((a - from) / step)); n <= Math.min(parts - 1, Math.floor((b - from) / step)); n++) count[n]++;
    const most = Math.max(1, ...count);
    const kind = group.tasks.some((task) => task.state === "failed") ? "failed" : SW.worst(group.states);
    return count.flatMap((many, n) => {
      if (!many) return [];
      const made = bar(from + n * step, from + (n + 1) * step, `sw-span-ran sw-${kind}`, `${many} at once`);
      if (made) made.style.opacity = 0.3 + (0.7 * many) / most;
      return [made];
    });
  }
  function line({ task, group, inside }) {
    const track = SW.el("div", { class: "sw-track" });
    if (group) {
      const open = opened.has(group.key);
      const name = SW.el("button", { type: "button", "aria-expanded": String(open), title: `${group.key}: ${SW.counted(group.states)}` }, `${open ? "▾" : "▸"} ${group.key} `, SW.el("span", { class: "sw-quiet" }, `× ${group.tasks.length}`));
      name.addEventListener("click", () => {
        open ? opened.delete(group.key) : opened.add(group.key);
        draw();
      });
      track.append(...density(group));
      return SW.el("div", { class: "sw-row", role: "listitem" }, SW.el("div", { class: "sw-row-name" }, name), track);
    }
    const mark = flow.critical.has(task.n) ? SW.el("span", { class: "sw-star", title: "on the critical path" }, "◆ ") : null;
    const said = `${task.name}: ${task.state}, waited ${SW.took(SW.waited(task))}, ran ${SW.took(SW.ran(task))}`;
    const name = SW.el("a", { href: SW.link(task), title: said, "aria-label": `${said}${mark ? ", on the critical path" : ""}` }, mark, task.name);
    track.append(...bars(task).filter(Boolean));
    return SW.el("div", { class: `sw-row${inside ? " sw-row-inside" : ""}`, role: "listitem" }, SW.el("div", { class: "sw-row-name" }, name), track);
  }
  function draw() {
    order();
    const top = Math.max(0, Math.floor(box.scrollTop / ROW) - SPARE);
    const some = rows.slice(top, top + Math.ceil(box.clientHeight / ROW) + 2 * SPARE);
    const focused = [...inner.querySelectorAll("a, button")].indexOf(document.activeElement);
    inner.replaceChildren(...some.map((row, n) => {
      const made = line(row);
      made.style.top = `${(top + n) * ROW}px`;
      return made;
    }));
    if (focused >= 0) inner.querySelectorAll("a, button")[focused]?.focus({ preventScroll: true });
    const base = Date.parse(flow.began);
    const whole = until - from;
    const words = (ms) => new Date(base + ms).toISOString().slice(11, whole < 5000 ? 21 : 19); // UTC, as everywhere on the page
    axis.replaceChildren(...Array.from({ length: TICKS }, (_, n) => {
      const tick = SW.el("span", {}, words(from + (whole * n) / TICKS));
      tick.style.left = `${(100 * n) / TICKS}%`;
      return tick;
    }));
    span.textContent = `${SW.took(whole)} shown`;
    sum.textContent = flow.critical.size
      ? `Critical path: ${SW.many(flow.critical.size, "task")}, ${SW.took(flow.critical_ms)} of which ${SW.took(flow.critical_ran_ms)} ran and ${SW.took(Math.max(0, flow.critical_ms - flow.critical_ran_ms))} waited.`
      : "Nothing has begun yet.";
  }

  // -- what a reader does ---------------------------------------------------------------------------------------
  const last = () => Math.max(1, ...flow.tasks.map(end));
  function all() {
    [from, until, zoomed] = [0, last() * 1.01, false];
    draw();
  }
  function zoom(factor, centre = 0.5) {
    const middle = from + (until - from) * centre;
    const whole = Math.min(last() * 1.01, Math.max(10, (until - from) * factor));
    from = Math.max(0, Math.min(middle - whole * centre, last() * 1.01 - whole));
    [until, zoomed] = [from + whole, true];
    draw();
  }
  function move(share) {
    const [whole, most] = [until - from, last() * 1.01];
    from = Math.max(0, Math.min(from + whole * share, most - whole));
    [until, zoomed] = [from + whole, true];
    draw();
  }
  const ACTS = { in: () => zoom(0.5), out: () => zoom(2), fit: all, left: () => move(-0.25), right: () => move(0.25) };
  part.addEventListener("click", (event) => flow && ACTS[event.target.closest("[data-act]")?.dataset.act]?.());
  by.addEventListener("change", () => flow && ((box.scrollTop = 0), draw()));
  only.addEventListener("change", () => flow && ((box.scrollTop = 0), draw()));
  box.addEventListener("scroll", () => flow && requestAnimationFrame(draw));
  box.addEventListener("wheel", (event) => {
    if (!flow || !(event.ctrlKey || event.shiftKey)) return; // a plain wheel scrolls
    event.preventDefault();
    const place = axis.getBoundingClientRect();
    if (event.ctrlKey) zoom(event.deltaY > 0 ? 1.25 : 0.8, Math.min(1, Math.max(0, (event.clientX - place.left) / place.width)));
    else move(Math.sign(event.deltaY || event.deltaX) * 0.1);
  }, { passive: false });

  SW.show((now) => {
    const first = !flow;
    flow = now;
    if (first) by.value = SW.grouping(EACH);
    zoomed ? draw() : all();
    part.dataset.drawn = "yes"; // for whoever waits for it
  });
})();
