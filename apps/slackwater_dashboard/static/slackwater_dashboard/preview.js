// Shows what the form as it stands would have made of the last hour, without saving it.
"use strict";
(() => {
  const card = document.getElementById("sw-preview");
  const [button, told] = [card.querySelector("button"), card.querySelector("[role=status]")];
  button.addEventListener("click", async () => {
    button.disabled = true;
    told.textContent = "The hour is replayed…";
    try {
      const given = { method: "POST", body: new FormData(card.closest("form")), credentials: "same-origin" };
      const answer = await fetch(new URL("preview/", location.href), given);
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      told.innerHTML = await answer.text();
    } catch (error) {
      told.textContent = `It could not be replayed: ${error.message}.`;
    }
    button.disabled = false;
  });
})();
