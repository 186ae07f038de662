// The page of a task: read it again when something changed, and stop asking once it is final.
"use strict";
(() => {
  const root = document.getElementById("sw-task");
  if (!root) return;
  const PERIOD = 2000;
  async function look() {
    if (!document.hidden) {
      try {
        const answer = await fetch(root.dataset.watch, { credentials: "same-origin" });
        if (!answer.ok) return; // logged out, or gone: the next click tells
        const now = await answer.json();
        if (now.mark !== root.dataset.seen) {
          location.reload();
          return;
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
