// The tabs of a workload's page change without a new page: whatever leads to #log-panel is fetched into it, and the address
// follows, so that it can be copied, reloaded and opened elsewhere.
"use strict";
(() => {
  const swap = async (address) => {
    const url = new URL(address, location.href);
    try {
      await htmx.ajax("GET", url.pathname + url.search, { target: "#log-panel", swap: "outerHTML" });
    } catch {
      return; // what goes wrong is told by events
    }
    history.replaceState(history.state, "", url);
  };
  const swapAndShow = async (address) => {
    await swap(address);
    document.getElementById("log-panel").scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href$='#log-panel']");
    if (!link || link.pathname !== location.pathname || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    swapAndShow(link.href);
  });
  document.addEventListener("submit", (event) => {
    const form = event.target.closest("#log-panel form[method=get]");
    if (!form) return;
    event.preventDefault();
    swapAndShow(`?${new URLSearchParams(new FormData(form))}#log-panel`);
  });
  // A workload that was queued again has started: who follows the log goes on with that of its new attempt.
  document.body.addEventListener("htmx:afterSettle", (event) => {
    const log = document.getElementById("log");
    const started = document.getElementById("now").dataset.started;
    if (event.target.id !== "now" || !log || !started || started === log.dataset.attempt) return;
    const place = new URLSearchParams(location.search);
    const chosen = ["attempt", "at", "previous"].some((name) => place.has(name));
    if (!chosen && document.getElementById("follow").checked && getSelection().isCollapsed) swap(location.href);
  });
})();
