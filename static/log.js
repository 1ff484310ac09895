// The log panel: its last lines first, then what is added, and what is before them when asked. Nothing that is shown is drawn
// again, so a selection and the place stay; it follows only where its end is in sight.
"use strict";
(() => {
  const log = document.getElementById("log");
  if (!log) return;
  const MOST = 4_000_000; // letters; more makes a browser slow
  const AT_ONCE = 200_000; // letters of an answer after which the next is asked for without waiting
  const PIECES = 40; // loaded for one search at most
  const [follow, state, earlier, lost, find, found, gap] = ["follow", "log-state", "log-earlier", "log-lost", "log-find", "log-found", "log-gap"].map(
    (id) => document.getElementById(id),
  );
  const open = document.createElement("span"); // the line that is not finished
  let decoder, terminal, start, offset, first, ended, busy, letters;
  const begin = () => {
    [decoder, terminal] = [new TextDecoder(), new Terminal()];
    [start, offset, first, ended, busy, letters] = [null, null, 0, false, false, 0];
    log.replaceChildren(open);
    open.replaceChildren();
  };
  const isAtEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 8;
  const isSelecting = () => {
    const selection = getSelection();
    return !selection.isCollapsed && log.contains(selection.anchorNode);
  };
  const toEnd = () => (log.scrollTop = log.scrollHeight);

  const get = async (place) => {
    const url = new URL(log.dataset.url, location.href);
    for (const name of ["attempt", "rank", "previous"]) if (log.dataset[name]) url.searchParams.set(name, log.dataset[name]);
    for (const [name, value] of Object.entries(place)) url.searchParams.set(name, value);
    const answer = await fetch(url, { headers: { "X-Requested-With": "fetch" } });
    if (answer.redirected || answer.status === 401) throw new Error("signed out");
    if (!answer.ok) throw new Error(String(answer.status));
    const number = (name, otherwise) => Number(answer.headers.get(name) ?? otherwise);
    return {
      data: await answer.arrayBuffer(),
      start: number("X-Log-Start", offset ?? 0),
      offset: number("X-Log-Offset", offset ?? 0),
      first: number("X-Log-Lost", 0),
      ended: answer.headers.get("X-Log-End") === "1",
    };
  };

  const tell = () => {
    earlier.hidden = start === null || start <= first;
    lost.hidden = !first;
    const size = first < 1 << 20 ? `${Math.ceil(first / 1024)} KiB` : `${Math.floor(first / (1 << 20))} MiB`;
    lost.textContent = lost.dataset.text.replace("%(size)s", size);
    state.textContent = ended ? log.dataset.ended : letters || busy ? "" : log.dataset.empty;
  };

  const ask = async () => {
    if (busy || ended || document.hidden) return;
    const follows = () => follow.checked && !isSelecting();
    if (letters > MOST && follows()) begin(); // the newest again; the rest is a click away
    if (letters > 4 * MOST) return;
    busy = true;
    let more = false;
    try {
      const answer = await get(offset === null ? {} : { offset });
      const stays = follows();
      if (offset !== null && answer.data.byteLength && answer.start !== offset) open.before(gap.content.cloneNode(true));
      start ??= answer.start;
      [offset, first, ended] = [answer.offset, answer.first, answer.ended];
      const text = decoder.decode(answer.data, { stream: !ended });
      if (text || ended) {
        const drawn = terminal.write(text, ended);
        open.before(drawn.done);
        open.replaceChildren(drawn.open);
        letters += text.length;
        if (stays) toEnd();
      }
      more = text.length > AT_ONCE;
      busy = false;
      tell();
    } catch {
      state.textContent = log.dataset.away;
    } finally {
      busy = false;
    }
    if (more) setTimeout(ask, 0);
  };

  const loadEarlier = async () => {
    if (busy || start === null || start <= first) return false;
    busy = earlier.disabled = true;
    try {
      const answer = await get({ before: start });
      const text = new TextDecoder().decode(answer.data);
      const drawn = new Terminal().write(text, true);
      const height = log.scrollHeight;
      log.prepend(drawn.done, drawn.open);
      log.scrollTop += log.scrollHeight - height;
      letters += text.length;
      const got = answer.start < start;
      [start, first] = got ? [answer.start, answer.first] : [first, answer.first];
      return got;
    } catch {
      state.textContent = log.dataset.away;
      return false;
    } finally {
      busy = earlier.disabled = false;
      tell();
    }
  };

  // Search in what is loaded; the marks are drawn beside the text, not in it.
  let marks = [];
  let at = -1;
  const look = () => {
    marks = [];
    const wanted = find.value;
    if (wanted) {
      const nodes = [];
      const walker = document.createTreeWalker(log, NodeFilter.SHOW_TEXT);
      let whole = "";
      while (walker.nextNode()) {
        nodes.push([whole.length, walker.currentNode]);
        whole += walker.currentNode.data;
      }
      let node = 0;
      const place = (index) => {
        while (node + 1 < nodes.length && nodes[node + 1][0] <= index) node += 1;
        return [nodes[node][1], index - nodes[node][0]];
      };
      for (const match of whole.matchAll(new RegExp(wanted.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "gi"))) {
        const range = new Range();
        range.setStart(...place(match.index));
        range.setEnd(...place(match.index + match[0].length - 1).map((part, which) => (which ? part + 1 : part)));
        marks.push(range);
        if (marks.length >= 10_000) break;
      }
    }
    if (globalThis.Highlight) CSS.highlights.set("log-found", new Highlight(...marks));
  };
  const show = () => {
    found.textContent = find.value ? log.dataset.found.replace("%(n)s", marks.length ? at + 1 : 0).replace("%(all)s", marks.length) : "";
    const mark = marks[at];
    if (globalThis.Highlight) CSS.highlights.set("log-found-now", new Highlight(...(mark ? [mark] : [])));
    if (!mark) return;
    follow.checked = false;
    log.scrollTop += mark.getBoundingClientRect().top - log.getBoundingClientRect().top - log.clientHeight / 2;
  };
  const step = async (by) => {
    look();
    for (let loaded = 0; !marks.length && find.value && loaded < PIECES && (await loadEarlier()); loaded += 1) look();
    at = marks.length ? (((at < 0 && by < 0 ? 0 : at) + by) % marks.length + marks.length) % marks.length : -1;
    show();
  };
  find.addEventListener("input", () => {
    at = -1;
    look();
    show();
  });
  find.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      step(event.shiftKey ? -1 : 1);
    }
  });
  for (const button of document.querySelectorAll("[data-log-step]")) button.addEventListener("click", () => step(Number(button.dataset.logStep)));

  earlier.addEventListener("click", loadEarlier);
  log.addEventListener("scroll", () => (follow.checked = isAtEnd()));
  follow.addEventListener("change", () => follow.checked && toEnd());
  document.body.addEventListener("live", ask);
  document.addEventListener("visibilitychange", ask);
  setInterval(ask, 1500);
  begin();
  ask();
})();
