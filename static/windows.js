// Rows of a form that can become more: the template's row with the next number.
"use strict";
(() => {
  for (const rows of document.querySelectorAll("[data-rows]")) {
    const total = rows.querySelector(`[name="${rows.dataset.rows}-TOTAL_FORMS"]`);
    const most = Number(rows.querySelector(`[name="${rows.dataset.rows}-MAX_NUM_FORMS"]`).value);
    const list = rows.querySelector("[data-row-list]");
    const more = rows.querySelector("[data-add-row]");
    more.hidden = Number(total.value) >= most;
    more.addEventListener("click", () => {
      const number = Number(total.value);
      const html = rows.querySelector("template").innerHTML;
      list.insertAdjacentHTML("beforeend", html.replaceAll("__prefix__", number).replaceAll("__number__", number + 1));
      total.value = number + 1;
      more.hidden = number + 1 >= most;
      list.lastElementChild.querySelector("input").focus();
    });
  }
})();
