// The page's few moving parts: clocks by the server's time, live refresh, dialogs, keys, copy, toasts. No build, no eval.
"use strict";
(() => {
  const root = document.documentElement;
  const words = document.getElementById("words").dataset;
  const one = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];

  // Times are written by the server: it is told the reader's zone, for the next page on.
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone) document.cookie = `zone=${zone};path=/;max-age=31536000;samesite=lax`;

  // Clocks: the server's time, whatever this machine believes.
  let skew = Date.parse(root.dataset.now) - Date.now();
  const now = () => Date.now() + skew;
  const duration = (seconds) => {
    let left = Math.max(0, Math.floor(seconds));
    const parts = [];
    for (const [size, label] of [[86400, words.d], [3600, words.h], [60, words.min], [1, words.s]]) {
      const count = Math.floor(left / size);
      left %= size;
      if (count || (size === 1 && !parts.length)) parts.push(`${count} ${label}`);
    }
    return parts.slice(0, 2).join(" ");
  };
  const two = (number) => String(number).padStart(2, "0");
  const shapes = {
    countdown(seconds) {
      const left = Math.max(0, Math.ceil(seconds));
      const rest = `${two(Math.floor((left % 3600) / 60))}:${two(left % 60)}`;
      return left >= 3600 ? `${Math.floor(left / 3600)}:${rest}` : rest.replace(/^0(?=\d)/, "");
    },
    relative(seconds) {
      if (Math.abs(seconds) < 1) return words.justNow;
      return (seconds > 0 ? words.in : words.ago).replace("%(time)s", duration(Math.abs(seconds)));
    },
    due: (seconds) => (seconds >= 1 ? words.in.replace("%(time)s", duration(seconds)) : words.now),
    since: (seconds) => duration(-seconds),
  };
  const tick = () => {
    for (const element of all("time[data-time]")) {
      const shape = shapes[element.dataset.time];
      if (!shape) continue;
      const text = shape((Date.parse(element.dateTime) - now()) / 1000);
      if (element.textContent !== text) element.textContent = text;
    }
  };

  // Live: one event stream a page; parts say hx-trigger="live from:body". While it is down, every 5 s without it.
  // The server says every 15 s that it is still there; a stream that says nothing for longer is broken and opened again.
  const SILENT = 45e3; // ms
  let source = null;
  let heard = Date.now();
  let updated = Date.now();
  let pending = 0;
  const refresh = () => {
    if (pending) return;
    pending = setTimeout(() => {
      pending = 0;
      htmx.trigger(document.body, "live");
    }, 150);
  };
  const isLive = () => source && source.readyState === EventSource.OPEN;
  const listen = () => {
    if (source || !one("[data-live-state]") || document.hidden) return;
    const narrow = one("[data-live-workload]")?.dataset.liveWorkload;
    source = new EventSource(narrow ? `/events/?workload=${narrow}` : "/events/");
    heard = Date.now();
    for (const kind of ["open", "change", "still"]) source.addEventListener(kind, () => (heard = Date.now()));
    source.addEventListener("change", refresh);
    source.onopen = refresh;
    source.onerror = () => {
      if (source && source.readyState === EventSource.CLOSED) source = null;
    };
  };
  const beat = () => {
    tick();
    if (source && Date.now() - heard > SILENT) {
      source.close();
      source = null;
      listen();
    }
    const seconds = (Date.now() - updated) / 1000;
    const opens = !isLive() && performance.now() < 5000; // a word for that moment would only flicker
    for (const element of opens ? [] : all("[data-live-state]")) {
      element.dataset.liveState = isLive() ? "open" : "polling";
      one("[data-live-text]", element).textContent =
        isLive() ? words.live : words.updated.replace("%(when)s", shapes.relative(-seconds));
    }
    if (!document.hidden && !isLive() && Math.round(seconds) % 5 === 4) refresh();
    if (!document.hidden && !source && Math.round(seconds) % 10 === 9) listen();
  };
  document.addEventListener("visibilitychange", () => {
    // A browser allows few connections to one host: hidden tabs give theirs back.
    if (document.hidden) {
      if (source) source.close();
      source = null;
    } else {
      listen();
      refresh();
    }
  });

  // Toasts.
  const toast = (text) => {
    const element = document.getElementById("toast-template").content.firstElementChild.cloneNode(true);
    one("span", element).textContent = text;
    document.getElementById("toasts").append(element);
    fade(element);
  };
  const fade = (element) => setTimeout(() => element.remove(), 8000);
  document.body.addEventListener("toast", (event) => toast(event.detail.value));
  document.body.addEventListener("htmx:responseError", (event) => {
    if (event.detail.xhr.status === 401) return; // session.js asks to log in again
    toast(words.failed.replace("%(status)s", event.detail.xhr.status));
  });
  let offline = false;
  for (const kind of ["htmx:sendError", "htmx:timeout"]) {
    document.body.addEventListener(kind, () => {
      if (!offline) toast(words.offline);
      offline = true;
    });
  }
  document.body.addEventListener("htmx:afterRequest", (event) => {
    if (!event.detail.successful) return;
    offline = false;
    const date = Date.parse(event.detail.xhr.getResponseHeader("Date"));
    if (date && Math.abs(date - now()) > 2000) skew = date - Date.now();
    if (event.detail.requestConfig.triggeringEvent?.type === "live") updated = Date.now();
  });
  document.body.addEventListener("htmx:afterSettle", tick);

  // Buttons of a picture alone say what they do while one points at them.
  document.body.addEventListener("mouseover", (event) => {
    const button = event.target.closest(".btn-icon[aria-label]:not([title])");
    if (button) button.title = button.ariaLabel;
  });

  // A table that is wider than its place can be scrolled by keys too.
  const reach = () => {
    for (const element of all(".table-responsive")) {
      if (element.scrollWidth > element.clientWidth) element.tabIndex = 0;
      else element.removeAttribute("tabindex");
    }
  };
  // Its width changes with the window, with what a refresh brings, and when a font arrives.
  const widths = new ResizeObserver(reach);
  const watchWidths = () => {
    widths.disconnect();
    for (const element of all(".table-responsive, .table-responsive > table")) widths.observe(element);
  };
  watchWidths();
  // A refresh changes only what is different, and what is being typed stays. Rows may have come or gone, so that an element may
  // say and do something else than before: what had the focus, and what was unfolded, is known by what it does.
  const part = (element) =>
    element.id || element.name || element.getAttribute("href") || element.getAttribute("commandfor") || element.dataset.copy || "";
  const does = (element) => [element.tagName, part(element), element.form?.getAttribute("action") ?? ""].join("|");
  const key = (element) => {
    const says = part(element) && element.value !== undefined ? element.value : element.textContent.trim();
    const typed = element.matches("input:not([type=checkbox], [type=radio]), textarea, select");
    return [does(element), typed ? "" : says].join("|");
  };
  const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";
  const like = (wanted, from, selector) => all(selector, from).filter((other) => key(other) === wanted);
  const nthLike = (element, from, selector) => like(key(element), from, selector).indexOf(element);
  let before = null;
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    const target = event.detail.target;
    const active = target.contains(document.activeElement) ? document.activeElement : null;
    Idiomorph.defaults.ignoreActiveValue = Boolean(active?.matches("input, textarea, select")); // a link would keep its old words
    before = {
      key: active && key(active),
      does: active && part(active) && does(active),
      nth: active ? nthLike(active, target, FOCUSABLE) : 0,
      place: active ? all(FOCUSABLE, target).indexOf(active) : 0,
      typed: active?.matches("input:not([type=checkbox], [type=radio]), textarea") ? [active.value, active.selectionStart, active.selectionEnd] : null,
      tables: all(".table-responsive", target).map((element) => [element.scrollLeft, element === active]),
      unfolded: all("details[open] > summary", target).map((each) => [key(each), nthLike(each, target, "details > summary")]),
    };
  });
  const keepFocus = (swapped) => {
    const active = document.activeElement;
    if (!before.key || (swapped.contains(active) && key(active) === before.key)) return;
    const same = like(before.key, swapped, FOCUSABLE);
    const there = all(FOCUSABLE, swapped);
    const renamed = [active, ...there].find((other) => does(other) === before.does);
    const next = same[before.nth] ?? same.at(-1) ?? renamed ?? there[Math.min(before.place, there.length - 1)];
    if (!next) {
      swapped.tabIndex = -1; // nothing is left to stand on: the part itself
      return swapped.focus({ preventScroll: true });
    }
    next.focus({ preventScroll: true });
    if (same.length && before.typed) {
      const [value, start, end] = before.typed;
      next.value = value;
      try {
        next.setSelectionRange(start, end);
      } catch {
        // numbers and dates have no caret that could be told
      }
    }
  };
  document.body.addEventListener("htmx:afterSwap", (event) => {
    const swapped = document.getElementById(event.detail.target.id) ?? event.detail.target;
    for (const [summary, nth] of before?.unfolded ?? []) {
      const same = like(summary, swapped, "details > summary")[nth];
      if (same) same.parentElement.open = true;
    }
    watchWidths();
    reach(); // now: the observer tells only with the next frame
    for (const [place, element] of all(".table-responsive", swapped).entries()) {
      const [left, focused] = before?.tables[place] ?? [0, false];
      element.scrollLeft = left;
      if (focused) element.focus({ preventScroll: true });
    }
    if (before) keepFocus(swapped);
    before = null;
  });
  // A form whose preview says that it would be refused does not invite to be sent: its button is one like any other, with the
  // reason beside it. It is not disabled: the preview is as old as the last key.
  document.body.addEventListener("htmx:afterSwap", (event) => {
    const panel = document.getElementById(event.detail.target.id) ?? event.detail.target;
    const note = panel.hasAttribute("hx-include") && one(`${panel.getAttribute("hx-include")} [data-refused-now]`);
    if (!note) return;
    const button = one(":scope > button", note.parentElement);
    button.dataset.invites ??= ["btn-primary", "btn-danger"].find((look) => button.classList.contains(look)) ?? "";
    note.hidden = !one("[data-refused]", panel);
    if (button.dataset.invites) button.classList.toggle(button.dataset.invites, note.hidden);
    if (note.hidden) button.removeAttribute("aria-describedby");
    else button.setAttribute("aria-describedby", note.id);
  });
  // Secrets of a form stay out of addresses: a preview takes along what its form says, not what protects it.
  document.body.addEventListener("htmx:configRequest", (event) => {
    if (event.detail.verb !== "get") return;
    for (const name of ["csrfmiddlewaretoken", "form_key"]) delete event.detail.parameters[name];
  });
  document.body.addEventListener("htmx:beforeRequest", (event) => {
    // A refresh would take away what is being chosen.
    const live = event.detail.requestConfig.triggeringEvent?.type === "live";
    if (live && one("[data-bulk]:not([hidden])")) event.preventDefault();
  });

  // Dialogs, copying, files, everything that a click starts. A current browser obeys `command` by itself, also before this script
  // has been loaded.
  const obeysCommands = "commandForElement" in HTMLButtonElement.prototype;
  const open = (id) => {
    const dialog = document.getElementById(id);
    if (!dialog || dialog.open) return;
    dialog.showModal();
    if (id === "palette") {
      one("input", dialog).select();
      htmx.trigger(document.body, "palette-open");
    }
  };
  document.addEventListener("click", async (event) => {
    if (event.target.closest("[data-palette]")) return open("palette");
    const button = event.target.closest("[commandfor]");
    if (button && !obeysCommands) {
      const id = button.getAttribute("commandfor");
      return button.getAttribute("command") === "close" ? document.getElementById(id).close() : open(id);
    }
    if (event.target.tagName === "DIALOG") return event.target.close();
    event.target.closest("[data-dismiss]")?.closest("[data-toast]").remove();
    if (event.target.closest("[data-print]")) return print();
    const copier = event.target.closest("[data-copy]");
    if (copier) {
      const from = document.getElementById(copier.dataset.copy);
      await navigator.clipboard.writeText(from.value ?? from.textContent);
      toast(words.copied);
    }
  });
  document.addEventListener("change", (event) => {
    const master = event.target.closest("[data-check-all]");
    if (master) for (const box of all(`input[name="${master.dataset.checkAll}"]`)) box.checked = master.checked;
    const bulk = one("[data-bulk]");
    if (bulk) {
      const count = all(`input[name="${bulk.dataset.bulk}"]:checked`).length;
      bulk.hidden = !count;
      for (const element of all("[data-bulk-count]")) element.textContent = count;
    }
    if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
  });
  document.addEventListener("submit", (event) => {
    // A second click must not send twice; the page that comes back has fresh buttons.
    const button = event.submitter;
    if (button && !event.target.hasAttribute("hx-post")) setTimeout(() => (button.disabled = true), 0);
  });
  addEventListener("pageshow", (event) => {
    if (event.persisted) for (const button of all("button[type=submit]:disabled")) button.disabled = false;
    // Whoever went back to a form means to send it again: it becomes a form of its own.
    if (event.persisted || performance.getEntriesByType("navigation")[0]?.type === "back_forward") {
      for (const field of all("input[name=form_key]")) field.value += `-${Date.now()}`;
    }
  });

  // Keys: Ctrl-K, ?, g + letter; arrows inside the palette.
  let waiting = 0;
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      return open("palette");
    }
    const palette = document.getElementById("palette");
    if (palette?.open) return move(event, palette);
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
    if (event.key === "?") return open("keys");
    if (event.key === "/" && one("[data-list-search]")) {
      event.preventDefault();
      return one("[data-list-search]").focus();
    }
    const links = all("[data-rows] [data-row]");
    if (links.length && ["j", "k"].includes(event.key) && !waiting) {
      const at = links.indexOf(document.activeElement?.closest("tr")?.querySelector("[data-row]"));
      return links[Math.min(Math.max(at + (event.key === "j" ? 1 : -1), 0), links.length - 1)].focus();
    }
    if (event.key === "x" && !waiting) return document.activeElement?.closest("[data-rows] tr")?.querySelector("input[type=checkbox]")?.click();
    if (waiting) {
      clearTimeout(waiting);
      waiting = 0;
      one(`[data-key="${CSS.escape(event.key)}"]`)?.click();
    } else if (event.key === "g") {
      waiting = setTimeout(() => (waiting = 0), 1200);
    }
  });
  const move = (event, palette) => {
    const items = all(".palette-item", palette);
    const at = items.indexOf(document.activeElement);
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const next = at + (event.key === "ArrowDown" ? 1 : -1);
      (next < 0 ? one("input", palette) : items[Math.min(next, items.length - 1)])?.focus();
    } else if (event.key === "Enter" && at < 0 && items[0]) {
      event.preventDefault();
      items[0].click();
    }
  };

  // An amount of another unit is another amount: with the pool it begins again with a sensible one.
  const unitOf = (select) => select.selectedOptions[0]?.dataset.unit;
  for (const select of all("select[data-resets]")) {
    let unit = unitOf(select);
    select.addEventListener("change", () => {
      if (unit !== unitOf(select)) {
        for (const name of select.dataset.resets.split(" ")) {
          const field = select.form.elements[name];
          if (field) field.value = name.startsWith("units") ? select.selectedOptions[0].dataset.first : "";
        }
      }
      unit = unitOf(select);
    });
  }

  // Parts of a form that only some choices of one of its fields have a use for; without scripts all of them show.
  const choose = (form) => {
    for (const part of all("[data-of]", form)) {
      part.hidden = !part.dataset.values.split(" ").includes(form.elements[part.dataset.of].value);
    }
  };
  for (const form of all("form:has([data-of])")) {
    choose(form);
    form.addEventListener("change", () => choose(form));
  }

  // The exact names of files to be sent: in the head of an upload they arrive altered.
  document.addEventListener("change", (event) => {
    const names = event.target.id && one(`input[data-names-of="${CSS.escape(event.target.id)}"]`);
    if (names) names.value = JSON.stringify([...event.target.files].map((file) => file.name));
  });

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
    if (!root.dataset.theme) root.dataset.bsTheme = event.matches ? "dark" : "light";
  });
  all("[data-toast]").forEach(fade);
  setInterval(beat, 1000);
  beat();
  listen();
})();
