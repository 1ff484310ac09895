// Forms that ask for a kind: what belongs to other kinds or templates is out of sight; what was typed there is kept.
"use strict";
(() => {
  const form = document.querySelector("[data-kinds]")?.closest("form");
  if (!form) return;
  const only = (attribute, chosen) => {
    for (const part of form.querySelectorAll(`[data-${attribute}]`)) {
      part.hidden = !part.dataset[attribute].split(" ").includes(chosen);
    }
  };
  const show = () => {
    only("kinds", form.elements.kind.value);
    only("templates", form.elements.template.value);
    const image = form.elements.image;
    if (image.selectedOptions[0]?.hidden) image.value = image.querySelector("option:not([hidden])")?.value ?? "";
  };
  form.addEventListener("change", show);
  show();
})();
