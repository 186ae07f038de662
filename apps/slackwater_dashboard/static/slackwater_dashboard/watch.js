// The page of a task or a workflow: what has changed is replaced, the rest stays as it is read, selected or scrolled to.
"use strict";
(() => {
  const root = document.getElementById("sw-task");
  if (!root) return;
  const PERIOD = root.dataset.watch ? 2000 : 5000;
  const TOKEN = /name="csrfmiddlewaretoken" value="[^"]*"/g; // another in each answer
  const said = (part) => part.outerHTML.replace(TOKEN, "").replace(/<details open="">/g, "<details>");

  function replace(old, part) {
    const places = [...old.querySelectorAll(".sw-scroll")].map((box) => [box.scrollLeft, box.scrollTop]);
    const focused = [...old.querySelectorAll("a, button, input")].indexOf(document.activeElement);
    const typed = old.querySelector("[name=reason]")?.value;
    const open = [...old.querySelectorAll("details")].map((fold) => fold.open);
    old.replaceWith(part);
    [...part.querySelectorAll("details")].forEach((fold, n) => (fold.open = open[n] ?? fold.open));
    if (typed && part.querySelector("[name=reason]")) part.querySelector("[name=reason]").value = typed;
    if (focused >= 0) part.querySelectorAll("a, button, input")[focused]?.focus({ preventScroll: true });
    [...part.querySelectorAll(".sw-scroll")].forEach((box, n) => box.scrollTo(...(places[n] || [0, 0])));
  }

  async function refresh() {
    const answer = await fetch(location.href, { credentials: "same-origin" });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const next = page.getElementById("sw-task");
    if (!next) return; // logged out, or gone: the next click tells
    const here = new Map([...root.children].map((part) => [part.dataset.part, part]));
    let before = null;
    for (const part of [...next.children]) {
      const old = here.get(part.dataset.part);
      here.delete(part.dataset.part);
      let kept = old;
      if (!old) before ? before.after((kept = part)) : root.prepend((kept = part));
      else if (!("own" in part.dataset) && said(old) !== said(part)) replace(old, (kept = part));
      before = kept;
    }
    for (const gone of here.values()) gone.remove();
    root.dataset.final = next.dataset.final || "";
  }

  async function ended() {
    if (!root.dataset.watch) {
      await refresh();
      return Boolean(root.dataset.final);
    }
    const answer = await fetch(root.dataset.watch, { credentials: "same-origin" });
    if (!answer.ok) return true; // logged out, or gone: the next click tells
    const now = await answer.json();
    if (now.mark !== root.dataset.seen) {
      await refresh();
      root.dataset.seen = now.mark;
    }
    return now.final;
  }

  async function look() {
    if (!document.hidden) {
      try {
        if (await ended()) return;
      } catch (error) {
        // the server is away: go on asking
      }
    }
    setTimeout(look, PERIOD);
  }
  const focus = root.querySelector(".sw-focus");
  const box = focus?.closest(".sw-scroll");
  if (box) {
    const [own, around] = [focus.getBoundingClientRect(), box.getBoundingClientRect()];
    box.scrollBy(own.x - around.x - (around.width - own.width) / 2, own.y - around.y - (around.height - own.height) / 2);
  }
  setTimeout(look, PERIOD);
})();
