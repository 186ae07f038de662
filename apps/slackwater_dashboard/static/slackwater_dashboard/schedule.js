// A schedule's form shows the fields of the chosen kind, and when what is filled in would fire.
"use strict";
(() => {
  const TASK = ["handler", "args", "kwargs", "tier", "category", "priority", "delay_tolerance_s", "on_late", "execution_cap_s",
                "total_attempts", "tags"];
  const RARE = ["expires_in_s", "retry", "mutex_key", "require_labels", "prefer_labels", "metadata", "resources", "more"];
  const FIELDS = {
    kind: { interval: ["every_s"], daily: ["times"], weekly: ["weekdays", "times"], monthly: ["days", "times", "short_months"],
            annually: ["dates", "times", "short_months"], cron: ["cron"], once: ["at"] },
    starts: { handler: [...TASK, ...RARE], template: ["template", "parameters"], workflow: ["workflow"] },
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
    const folded = form.querySelector(".field-more")?.closest("fieldset");
    if (folded) folded.hidden = RARE.every((field) => form.querySelector(`.field-${field}`)?.hidden);
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
