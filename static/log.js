// The log panel: its last lines first, then what is added. It keeps at most what a browser shows without effort.
"use strict";
(() => {
  const log = document.getElementById("log");
  if (!log) return;
  const MOST = 2_000_000; // letters
  const follow = document.getElementById("follow");
  const state = document.getElementById("log-state");
  const decoder = new TextDecoder();
  let offset = null;
  let ended = false;
  let busy = false;
  const ask = async () => {
    if (busy || ended || document.hidden) return;
    busy = true;
    try {
      const url = new URL(log.dataset.url, location.href);
      if (log.dataset.attempt) url.searchParams.set("attempt", log.dataset.attempt);
      if (log.dataset.rank) url.searchParams.set("rank", log.dataset.rank);
      if (log.dataset.previous) url.searchParams.set("previous", log.dataset.previous);
      if (offset !== null) url.searchParams.set("offset", offset);
      const answer = await fetch(url, { headers: { "X-Requested-With": "fetch" } });
      if (answer.redirected) return location.reload(); // the session has ended
      if (!answer.ok) throw new Error(String(answer.status));
      const text = decoder.decode(await answer.arrayBuffer(), { stream: true });
      offset = Number(answer.headers.get("X-Log-Offset") ?? offset ?? 0);
      ended = answer.headers.get("X-Log-End") === "1";
      if (text) {
        log.textContent = (log.dataset.filled ? log.textContent + text : text).slice(-MOST);
        log.dataset.filled = "1";
      } else if (!log.dataset.filled) {
        log.textContent = log.dataset.empty;
      }
      state.textContent = ended ? log.dataset.ended : "";
      if (text && follow.checked) log.scrollTop = log.scrollHeight;
      if (text.length > 200_000) setTimeout(ask, 0);
    } catch {
      state.textContent = log.dataset.away;
    } finally {
      busy = false;
    }
  };
  follow.addEventListener("change", () => follow.checked && (log.scrollTop = log.scrollHeight));
  document.body.addEventListener("live", ask);
  setInterval(ask, 1500);
  ask();
})();
