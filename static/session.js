// A form outlives the session of its page: before it is sent the page asks whether somebody is still logged in, lets them log
// in again where they are (or in another tab), and takes the form token that counts now. What was typed stays.
"use strict";
(() => {
  const root = document.documentElement;
  const dialog = document.getElementById("session");
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];

  // Drafts: what was typed stays when the reader changes the language, whose page is another one.
  const PLACE = "portal-draft";
  const fields = () =>
    all("main form").flatMap((form, at) =>
      [...form.elements]
        .filter((field) => field.name && !field.disabled && !["hidden", "password", "file", "submit", "button"].includes(field.type))
        .map((field, number) => [`${at}/${number}/${field.name}`, field]),
    );
  const keep = (url) => {
    const values = fields().map(([key, field]) => [
      key,
      field.type === "checkbox" || field.type === "radio" ? field.checked : field.value,
    ]);
    const draft = { url: new URL(url, location.href).href, at: Date.now(), values };
    try {
      sessionStorage.setItem(PLACE, JSON.stringify(draft));
    } catch {
      // no room: then the draft is not kept
    }
  };
  const restore = () => {
    const draft = JSON.parse(sessionStorage.getItem(PLACE) ?? "null");
    sessionStorage.removeItem(PLACE);
    if (!draft || draft.url !== location.href || Date.now() - draft.at > 60_000) return;
    const values = new Map(draft.values);
    const touched = new Set();
    for (const [key, field] of fields()) {
      if (!values.has(key)) continue;
      const name = field.type === "checkbox" || field.type === "radio" ? "checked" : "value";
      if (field[name] === values.get(key)) continue;
      field[name] = values.get(key);
      touched.add(field);
    }
    for (const field of touched) field.dispatchEvent(new Event("input", { bubbles: true }));
  };
  // After every other script has made its page.
  addEventListener("DOMContentLoaded", restore);

  const renew = (token) => {
    for (const field of all("input[name=csrfmiddlewaretoken]")) field.value = token;
    document.body.setAttribute("hx-headers", JSON.stringify({ "X-CSRFToken": token }));
  };
  // "" when all is well, else what stands in the way: ended, other, offline.
  let token = "";
  const look = async () => {
    try {
      const answer = await fetch("/session/", {
        headers: { Accept: "application/json" },
        cache: "no-store",
        signal: AbortSignal.timeout(30e3),
      });
      const told = await answer.json();
      token = told.csrf;
      renew(token);
      return answer.status === 401 ? "ended" : told.user === root.dataset.user ? "" : "other";
    } catch {
      return "offline";
    }
  };
  const say = (key) => {
    const fault = dialog.querySelector("[data-fault]");
    fault.textContent = dialog.dataset[key] ?? "";
    fault.hidden = !fault.textContent;
  };
  // Resolves to true when the person of this page is logged in, to false when they put it off.
  let asking = null;
  const ask = (state) => {
    asking ??= new Promise((resolve) => {
      say(state);
      if (!dialog.open) dialog.showModal();
      dialog.querySelector("[type=password]").focus();
      const back = async () => {
        if (!document.hidden && (await look()) === "") done(true); // logged in in another tab
      };
      const timer = setInterval(back, 2000);
      const done = (well) => {
        clearInterval(timer);
        removeEventListener("focus", back);
        document.removeEventListener("visibilitychange", back);
        dialog.removeEventListener("close", later);
        asking = null;
        dialog.querySelector("[type=password]").value = "";
        if (dialog.open) dialog.close();
        resolve(well);
        if (well) window.htmx?.trigger(document.body, "live");
      };
      const later = () => done(false);
      dialog.addEventListener("close", later);
      addEventListener("focus", back);
      document.addEventListener("visibilitychange", back);
      dialog.querySelector("form").onsubmit = async (event) => {
        event.preventDefault();
        event.stopPropagation(); // its button stays usable
        const body = new URLSearchParams(new FormData(event.target));
        body.set("csrfmiddlewaretoken", token);
        let status = 0;
        let leads = false; // onwards: the password was right
        try {
          const answer = await fetch(event.target.action, { method: "POST", body, redirect: "manual" });
          status = answer.status;
          leads = answer.type === "opaqueredirect";
        } catch {
          return say("offline");
        }
        const now = await look();
        if (now === "") return done(true);
        say(now === "other" ? "other" : now === "offline" ? "offline" : status === 429 ? "locked" : leads ? "second" : "wrong");
      };
    });
    return asking;
  };
  const well = async () => {
    const state = await look();
    return state === "" || ask(state);
  };

  const passed = new WeakSet(); // asked about: this time they are sent
  let underWay = new WeakSet(); // being asked about, or sent: a second click changes nothing
  addEventListener("pageshow", (event) => event.persisted && (underWay = new WeakSet()));
  addEventListener("submit", (event) => event.defaultPrevented && !passed.has(event.target) && underWay.delete(event.target));
  document.addEventListener(
    "submit",
    async (event) => {
      const form = event.target;
      if (form.dataset.keepsDrafts !== undefined) return keep(form.elements.next.value);
      if (!dialog || form.method !== "post" || form.hasAttribute("hx-post") || form.dataset.noSession !== undefined) return;
      if (passed.delete(form)) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      if (underWay.has(form)) return;
      underWay.add(form);
      const submitter = event.submitter;
      if (!(await well())) return underWay.delete(form);
      passed.add(form);
      if (!form.isConnected) {
        form.hidden = true; // a live part was replaced meanwhile, and the form with it: outside of a page it would not be sent
        document.body.append(form);
      }
      form.requestSubmit(submitter);
      if (passed.delete(form)) underWay.delete(form); // it has become invalid meanwhile
    },
    true,
  );
  document.addEventListener("htmx:confirm", (event) => {
    if (!dialog || event.detail.verb !== "post" || !event.detail.elt.matches("form")) return;
    event.preventDefault();
    well().then((ready) => ready && event.detail.issueRequest(true));
  });
  // Parts that were refused meanwhile (a preview, a search) ask again with what stands in the form by then, or the page would
  // show what was true of the words before. Once: what is refused to a person who is logged in stays refused.
  const refused = new Map();
  const repeated = new WeakSet();
  const repeat = () => {
    for (const [element, { verb, path }] of refused) {
      if (element.isConnected && !repeated.has(element)) {
        repeated.add(element);
        window.htmx.ajax(verb, path, { source: element }).catch(() => {}); // what goes wrong is told by events
      }
    }
    refused.clear();
  };
  let putOff = false; // whoever said "Later" is asked again when they send something
  document.addEventListener("htmx:responseError", async (event) => {
    if (!dialog || ![401, 403].includes(event.detail.xhr.status)) return;
    refused.set(event.detail.elt, event.detail.requestConfig);
    if (putOff) return;
    putOff = !(await well()); // 403: the form token was another login's, perhaps; now it is renewed
    if (!putOff) repeat();
  });
  document.addEventListener("htmx:afterOnLoad", (event) => event.detail.successful && repeated.delete(event.detail.elt));
})();
