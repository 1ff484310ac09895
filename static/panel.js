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
    document.getElementById("log-panel").scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href$='#log-panel']");
    if (!link || link.pathname !== location.pathname || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    swap(link.href);
  });
  document.addEventListener("submit", (event) => {
    const form = event.target.closest("#log-panel form[method=get]");
    if (!form) return;
    event.preventDefault();
    swap(`?${new URLSearchParams(new FormData(form))}#log-panel`);
  });
})();
