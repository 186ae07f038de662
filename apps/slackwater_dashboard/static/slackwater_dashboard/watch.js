// The page of a task: what has changed is replaced, the rest stays as it is read, selected or scrolled to.
"use strict";
(() => {
  const root = document.getElementById("sw-task");
  if (!root) return;
  const PERIOD = 2000;

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
      else if (part.dataset.part !== "output" && old.outerHTML !== part.outerHTML) old.replaceWith((kept = part));
      before = kept;
    }
    for (const gone of here.values()) gone.remove();
  }

  async function look() {
    if (!document.hidden) {
      try {
        const answer = await fetch(root.dataset.watch, { credentials: "same-origin" });
        if (!answer.ok) return; // logged out, or gone: the next click tells
        const now = await answer.json();
        if (now.mark !== root.dataset.seen) {
          await refresh();
          root.dataset.seen = now.mark;
        }
        if (now.final) return;
      } catch (error) {
        // the server is away: go on asking
      }
    }
    setTimeout(look, PERIOD);
  }
  setTimeout(look, PERIOD);
})();
