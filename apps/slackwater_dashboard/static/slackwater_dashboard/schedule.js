// A schedule's form shows the fields of the chosen kind, and when what is filled in would fire.
"use strict";
(() => {
  const FIELDS = {
    kind: { interval: ["every_s"], daily: ["times"], weekly: ["weekdays", "times"], monthly: ["days", "times", "short_months"],
            annually: ["dates", "times", "short_months"], cron: ["cron"], once: ["at"] },
    starts: { handler: ["handler", "args", "kwargs", "more"], template: ["template", "parameters"], workflow: ["workflow"] },
  };
  const card = document.getElementById("sw-firings"), form = card.closest("form");
  const [button, told] = [card.querySelector("button"), card.querySelector("[role=status]")];
  function show() {
    for (const [name, kinds] of Object.entries(FIELDS)) {
      const chosen = form.querySelector(`input[name=${name}]:checked`)?.value;
      for (const field of new Set(Object.values(kinds).flat())) {
        const line = form.querySelector(`.field-${field}`);
        if (chosen && line) line.hidden = !kinds[chosen].includes(field) && !line.querySelector(".errorlist");
      }
    }
  }
  async function preview() {
    try {
      const answer = await fetch(card.dataset.firings, { method: "POST", body: new FormData(form), credentials: "same-origin" });
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      told.innerHTML = await answer.text();
    } catch (error) {
      told.textContent = `It cannot be told: ${error.message}.`;
    }
  }
  form.addEventListener("change", show);
  button.addEventListener("click", preview);
  show();
})();
