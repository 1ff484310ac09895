// The request form: a pool decides what an amount is called, and whether a MIG profile is chosen instead.
"use strict";
(() => {
  const form = document.getElementById("request");
  if (!form) return;
  const amount = form.querySelector("[data-amount]");
  const profile = form.querySelector("[data-profile]");
  const cores = form.querySelector("div[data-cores]");
  form.querySelector("#pools")?.classList.add("one-offer");
  const show = () => {
    const pool = form.querySelector(`[data-pool="${CSS.escape(form.elements.pool.value)}"]`);
    if (!pool) return;
    for (const other of form.querySelectorAll("#pools > li")) other.hidden = other !== pool;
    amount.hidden = Boolean(pool.dataset.mig);
    amount.querySelector("label").textContent = pool.dataset.label;
    form.elements.units_per_pod.placeholder = pool.dataset.examples;
    if (cores) cores.hidden = !pool.dataset.cores;
    for (const part of form.querySelectorAll("[data-extra]")) {
      part.hidden = !pool.dataset.extras.split(" ").includes(part.dataset.extra);
    }
    if (!profile) return;
    profile.hidden = !pool.dataset.mig;
    for (const group of profile.querySelectorAll("optgroup")) group.hidden = group.label !== pool.dataset.mig;
    const chosen = profile.querySelector("option:checked");
    if (pool.dataset.mig && (!chosen?.value || chosen.parentElement.hidden)) {
      form.elements.profile.value = profile.querySelector("optgroup:not([hidden]) option")?.value ?? "";
    }
  };
  form.elements.pool.addEventListener("change", show);
  form.addEventListener("click", (event) => {
    const taken = event.target.closest("[data-take-pool]");
    if (!taken) return;
    form.elements.pool.value = taken.dataset.takePool;
    show();
    if (taken.dataset.takeProfile) form.elements.profile.value = taken.dataset.takeProfile;
    else form.elements.units_per_pod.value = taken.dataset.takeUnits;
    for (const step of form.querySelectorAll(".amount-step")) step.setAttribute("aria-pressed", String(step === taken));
    form.dispatchEvent(new Event("input", { bubbles: true }));
  });
  // Submit stands many stops of Tab after a preset.
  document.addEventListener("keydown", (event) => {
    const asks = event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.repeat;
    if (asks && !event.target.closest("dialog")) form.requestSubmit(form.querySelector("[type=submit].btn-primary"));
  });
  show();
  // On a narrow screen the bar with Submit says what the panel far below says.
  const copy = form.querySelector("[data-verdict-copy]");
  const tell = () => {
    const headline = form.querySelector("#verdict .verdict-headline");
    copy.textContent = [headline?.textContent, headline?.dataset.expected].filter(Boolean).join("\n");
  };
  form.querySelector("#verdict").addEventListener("htmx:afterSwap", tell);
  tell();
})();
