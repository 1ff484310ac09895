// The log panel: its last lines first, then what is added, and what is before them when asked. Nothing that is shown is drawn
// again, so a selection and the place stay; it follows only where its end is in sight.
"use strict";
const attachLog = () => {
  const log = document.getElementById("log");
  if (!log || log.dataset.attached) return;
  log.dataset.attached = "1"; // it comes anew with its tab
  const MOST = 4_000_000; // letters; more makes a browser slow
  const AT_ONCE = 200_000; // letters of an answer after which the next is asked for without waiting
  const PIECES = 40; // loaded for one search at most
  const ERRORS = /error|exception|traceback|fatal|panic|segmentation fault|out of memory|killed/gi;
  const [follow, state, earlier, lost, find, found, gap, wrap, errors, share] = [
    "follow", "log-state", "log-earlier", "log-lost", "log-find", "log-found", "log-gap", "log-wrap", "log-errors", "log-share",
  ].map(
    (id) => document.getElementById(id),
  );
  const open = document.createElement("span"); // the line that is not finished
  let decoder, terminal, start, offset, first, ended, busy, letters;
  let lines; // where each line that is shown begins in the whole log, in bytes: what a link to a line names
  let linked = /^\d+$/.test(log.dataset.at) ? Number(log.dataset.at) : null;
  const begin = () => {
    [decoder, terminal] = [new TextDecoder(), new Terminal()];
    [start, offset, first, ended, busy, letters] = [null, null, 0, false, false, 0];
    log.replaceChildren(open);
    open.replaceChildren();
    lines = [];
  };
  const begins = (data, from) => {
    const places = [from];
    for (let at = data.indexOf(10); at >= 0; at = data.indexOf(10, at + 1)) places.push(from + at + 1);
    return places;
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
    const answer = await fetch(url, { headers: { "X-Requested-With": "fetch" }, signal: AbortSignal.timeout(30e3) });
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
      const began = offset !== null;
      if (!began && linked !== null) follow.checked = false;
      const answer = await get(began ? { offset } : linked !== null ? { offset: linked } : {});
      const stays = follows();
      const missing = began && answer.data.byteLength && answer.start !== offset;
      if (missing) {
        open.before(gap.content.cloneNode(true));
        lines.push(answer.start);
      }
      for (const place of begins(new Uint8Array(answer.data), answer.start).slice(began ? 1 : 0)) lines.push(place);
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
      if (!began && linked !== null) {
        await loadEarlier();
        toLine(linked);
      }
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
      const before = begins(new Uint8Array(answer.data), answer.start);
      if (before.at(-1) === lines[0]) before.pop();
      else lines.shift(); // its beginning was in the piece before
      lines = before.concat(lines);
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

  // A link to a line names its first byte.
  const lineOf = (node, place) => {
    const above = new Range();
    above.setStart(log, 0);
    above.setEnd(node, place);
    return above.toString().split("\n").length - 1;
  };
  const rangeOf = (line) => {
    const range = new Range();
    const walker = document.createTreeWalker(log, NodeFilter.SHOW_TEXT);
    let left = line;
    let begun = left === 0;
    if (begun) range.setStart(log, 0);
    while (walker.nextNode()) {
      const text = walker.currentNode.data;
      for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) {
        if (begun) {
          range.setEnd(walker.currentNode, at);
          return range;
        }
        left -= 1;
        begun = left === 0;
        if (begun) range.setStart(walker.currentNode, at + 1);
      }
    }
    range.setEnd(log, log.childNodes.length);
    return range;
  };
  const toLine = (place) => {
    const line = lines.findLastIndex((each) => each <= place);
    if (line < 0) return;
    const range = rangeOf(line);
    if (globalThis.Highlight) {
      const mark = new Highlight(range);
      mark.priority = -1; // what was searched for stays on top of it
      CSS.highlights.set("log-line", mark);
    }
    log.scrollTop += range.getBoundingClientRect().top - log.getBoundingClientRect().top - log.clientHeight / 3;
  };
  share.addEventListener("click", async () => {
    const selection = getSelection();
    const chosen = selection.anchorNode && log.contains(selection.anchorNode) ? selection.getRangeAt(0) : marks[at];
    const say = (value) => document.body.dispatchEvent(new CustomEvent("toast", { detail: { value } }));
    if (!chosen) return say(log.dataset.choose);
    const place = lines[Math.min(lineOf(chosen.startContainer, chosen.startOffset), lines.length - 1)];
    const url = new URL(location.href);
    url.search = new URLSearchParams({ tab: "log", attempt: log.dataset.attempt, rank: log.dataset.rank, at: place });
    url.hash = "log-panel";
    history.replaceState(history.state, "", url);
    toLine(place);
    await navigator.clipboard.writeText(url.href);
    say(log.dataset.linked);
  });

  // Search in what is loaded; the marks are drawn beside the text, not in it.
  let marks = [];
  let at = -1;
  let wanted = null;
  const look = () => {
    marks = [];
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
      for (const match of whole.matchAll(wanted)) {
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
    const some = marks.length ? log.dataset.found.replace("%(n)s", at + 1).replace("%(all)s", marks.length) : log.dataset.none;
    found.textContent = wanted ? some : "";
    const mark = marks[at];
    if (globalThis.Highlight) CSS.highlights.set("log-found-now", new Highlight(...(mark ? [mark] : [])));
    if (!mark) return;
    follow.checked = false;
    log.scrollTop += mark.getBoundingClientRect().top - log.getBoundingClientRect().top - log.clientHeight / 2;
  };
  const step = async (by) => {
    look();
    for (let loaded = 0; !marks.length && wanted && loaded < PIECES && (await loadEarlier()); loaded += 1) look();
    at = marks.length ? (((at < 0 && by < 0 ? 0 : at) + by) % marks.length + marks.length) % marks.length : -1;
    show();
  };
  find.addEventListener("input", () => {
    at = -1;
    wanted = find.value ? new RegExp(find.value.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "gi") : null;
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

  errors.addEventListener("click", () => {
    if (wanted !== ERRORS) [wanted, at, find.value] = [ERRORS, -1, ""];
    step(-1);
  });
  const wrapped = () => log.classList.toggle("log-unwrapped", !wrap.checked);
  try {
    wrap.checked = localStorage.getItem("log-wrap") !== "no";
  } catch {
    // without storage it is forgotten
  }
  wrapped();
  wrap.addEventListener("change", () => {
    wrapped();
    try {
      localStorage.setItem("log-wrap", wrap.checked ? "yes" : "no");
    } catch {
      // the same
    }
  });

  earlier.addEventListener("click", loadEarlier);
  log.addEventListener("scroll", () => (follow.checked = isAtEnd()));
  follow.addEventListener("change", () => follow.checked && toEnd());
  const leaving = new AbortController();
  const whileThere = () => {
    if (log.isConnected) return ask();
    leaving.abort();
    clearInterval(beat);
  };
  document.body.addEventListener("live", whileThere, { signal: leaving.signal });
  document.addEventListener("visibilitychange", whileThere, { signal: leaving.signal });
  const beat = setInterval(whileThere, 1500);
  begin();
  ask();
};
attachLog();
document.body.addEventListener("htmx:afterSettle", attachLog);
