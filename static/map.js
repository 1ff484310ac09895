// The card map: a click or Enter shows a node's details beside the map; arrow keys move from node to node and card to card.
(() => {
  "use strict";
  const map = () => document.getElementById("card-map");
  let at = null; // address of the chosen node
  let card = 0;

  const links = () => [...map().querySelectorAll(".map-nodes a")];
  const cardsOf = (link) => link.querySelectorAll(".map-card");
  const rowsOf = (link) => [...link.querySelectorAll("svg[data-n]")];
  const countOf = (link) => cardsOf(link).length + rowsOf(link).reduce((sum, row) => sum + Number(row.dataset.n), 0) || 1;

  // One stop for the Tab key, however many nodes there are. Only what changes is touched: there may be a thousand.
  let marked = null;
  function settle() {
    const all = links();
    const chosen = (at && map().querySelector(`.map-nodes a[href="${CSS.escape(at)}"]`)) || all[0];
    if (marked === null || !marked.isConnected) all.forEach((link) => { link.tabIndex = -1; });
    if (marked && marked !== chosen) mark(marked, false);
    if (chosen) mark(chosen, true);
    marked = chosen || null;
    return chosen;
  }

  function mark(link, on) {
    link.tabIndex = on ? 0 : -1;
    link.classList.toggle("map-at", on && at !== null);
    cardsOf(link).forEach((each, index) => each.classList.toggle("map-here", on && at !== null && index === card));
  }

  function show(link, index) {
    at = link.getAttribute("href");
    card = index;
    settle();
    window.htmx.ajax("GET", `${at}?card=${index}`, { target: "#map-node", swap: "innerHTML" }).catch(() => {}); // what goes wrong is told by events
  }

  function cardUnder(link, event) {
    const tile = event.target.closest(".map-card");
    if (tile) return Number(tile.dataset.card);
    const row = event.target.closest("svg[data-n]") || rowsOf(link)[0];
    if (!row) return 0;
    const box = row.getBoundingClientRect();
    const number = Math.floor(((event.clientX - box.left) / Math.max(1, box.width)) * Number(row.dataset.n));
    return Math.max(0, Math.min(Number(row.dataset.n) - 1, number)) + Number(row.dataset.first || 0);
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest?.(".map-nodes a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    show(link, event.detail ? cardUnder(link, event) : card);
  });

  // The node above or below on the screen.
  function beside(all, link, down) {
    const here = link.getBoundingClientRect();
    const rows = all.filter((each) => (down ? each.getBoundingClientRect().top > here.bottom - 2 : each.getBoundingClientRect().bottom < here.top + 2));
    const distance = (each) => {
      const box = each.getBoundingClientRect();
      return Math.abs(box.top - here.top) * 1000 + Math.abs(box.left - here.left);
    };
    return rows.reduce((best, each) => (best && distance(best) <= distance(each) ? best : each), null);
  }

  document.addEventListener("keydown", (event) => {
    const link = event.target.closest?.(".map-nodes a");
    if (!link || event.altKey || event.ctrlKey || event.metaKey) return;
    const all = links();
    const number = all.indexOf(link);
    let next = null;
    if (event.key === "ArrowRight") {
      if (card + 1 < countOf(link)) { next = link; card += 1; } else if (all[number + 1]) { next = all[number + 1]; card = 0; }
    } else if (event.key === "ArrowLeft") {
      if (card > 0) { next = link; card -= 1; } else if (all[number - 1]) { next = all[number - 1]; card = countOf(next) - 1; }
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      next = beside(all, link, event.key === "ArrowDown");
    } else if (event.key === "Home") next = all[0];
    else if (event.key === "End") next = all[all.length - 1];
    if (!next) return;
    event.preventDefault();
    card = Math.min(card, countOf(next) - 1);
    at = next.getAttribute("href");
    settle();
    next.focus();
  });

  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.target.id !== "card-map" && !event.target.querySelector?.("#card-map")) return;
    const focused = document.activeElement === document.body && at !== null && document.body.dataset.mapFocus === "1";
    const chosen = settle();
    if (focused) chosen?.focus({ preventScroll: true });
  });
  document.addEventListener("htmx:beforeSwap", () => {
    document.body.dataset.mapFocus = document.activeElement?.closest?.(".map-nodes") ? "1" : "";
  });
  document.addEventListener("change", (event) => {
    if (event.target.name !== "show") return;
    const url = new URL(window.location.href);
    url.searchParams.set("show", event.target.value);
    window.history.replaceState(null, "", url);
  });
  if (map()) settle();
})();
