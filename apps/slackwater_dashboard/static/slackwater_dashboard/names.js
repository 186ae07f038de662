// Names for what the theme's widgets leave without one, so that a screen reader can tell them; celery-beat's crontabs in words.
"use strict";
(() => {
  function name() {
    for (const box of document.querySelectorAll(".select2-selection")) {
      const select = box.closest(".select2-container").previousElementSibling;
      const label = select?.labels?.[0]?.textContent.trim() || select?.getAttribute("aria-label") || select?.name || "choice";
      for (const part of [box, box.querySelector(".select2-selection__rendered")]) part?.setAttribute("aria-label", label);
    }
    for (const mark of document.querySelectorAll(".help-tooltip[aria-label]")) mark.setAttribute("role", "img");
  }
  function crontabs() {
    const data = document.getElementById("readable-crontabs"), select = document.getElementById("id_crontab");
    const help = document.querySelector(".field-crontab .text-xs");
    if (!data || !select || !help) return;
    const readable = JSON.parse(data.textContent), before = help.textContent.trim();
    const tell = () => (help.textContent = [before, readable[select.value]].filter(Boolean).join(" "));
    select.addEventListener("change", tell);
    tell();
  }
  addEventListener("DOMContentLoaded", () => {
    name();
    crontabs();
    new MutationObserver(name).observe(document.body, { childList: true, subtree: true }); // widgets are made later, and in new rows
  });
})();
