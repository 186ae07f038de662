// Dark or light: as the system has it, until somebody chooses; before the page is drawn.
"use strict";
(() => {
  const KEY = "slackwater-theme";
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const show = () => root.classList.toggle("dark", (localStorage.getItem(KEY) || (system.matches ? "dark" : "light")) === "dark");
  show();
  system.addEventListener("change", show);
  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("co-theme");
    if (!button) return;
    button.hidden = false;
    button.addEventListener("click", () => {
      localStorage.setItem(KEY, root.classList.contains("dark") ? "light" : "dark");
      show();
    });
  });
})();
