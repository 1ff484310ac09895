// What changes around every page: the unread count beside Inbox and in the title, the countdown of what goes back next in
// the title, and, where the reader asked for it, the browser's own notifications. Hidden tabs ask too, less often.
"use strict";
(() => {
  const { url, name: portal } = document.currentScript.dataset;
  const plain = document.title;
  const SOON = 2_000; // ms between two looks, however much happens
  const EVERY = { visible: 15_000, hidden: 30_000 };
  let known = { unread: 0, goes_back: null };
  let skew = 0; // the server's clock less this machine's
  let looked = 0;
  let looking = false;
  let again = 0;

  const clock = (at) => {
    const left = Math.max(0, Math.ceil((Date.parse(at) - Date.now() - skew) / 1000));
    const two = (number) => String(number).padStart(2, "0");
    const hours = Math.floor(left / 3600);
    return hours ? `${hours}:${two(Math.floor((left % 3600) / 60))}:${two(left % 60)}` : `${Math.floor(left / 60)}:${two(left % 60)}`;
  };
  // The page's own countdown, unless the reader has work that goes before.
  const next = () => {
    const shown = document.querySelector("#now .big-number time[data-time=countdown]")?.dateTime;
    const own = known.goes_back;
    if (own && (!shown || Date.parse(own.at) < Date.parse(shown))) {
      return `${clock(own.at)} ${own.url === location.pathname ? "" : `${own.name} `}· `;
    }
    return shown ? `${clock(shown)} · ` : "";
  };
  const title = () => {
    const text = `${known.unread ? `(${known.unread}) ` : ""}${next()}${plain}`;
    if (document.title !== text) document.title = text;
  };
  const badge = () => {
    for (const element of document.querySelectorAll("[data-unread]")) {
      element.hidden = !known.unread;
      element.textContent = known.unread;
      element.setAttribute("aria-label", known.unread_label);
    }
  };

  // Notifications: asked for on the page "What to tell me", kept in this browser only, one for all its tabs.
  const can = "Notification" in window && window.isSecureContext;
  const wanted = () => can && Notification.permission === "granted" && localStorage.getItem("notify") === "on";
  const notify = (newest) => {
    const last = Number(localStorage.getItem("notified") ?? 0);
    if (!newest || newest.id <= last) return;
    localStorage.setItem("notified", newest.id);
    const shown = new Notification(portal, { body: newest.text, tag: `inbox-${newest.id}` });
    shown.onclick = () => {
      window.focus();
      location.assign(newest.url);
    };
  };
  const inTurn = (deed) => (navigator.locks ? navigator.locks.request("notify", deed) : deed());

  const look = async () => {
    const rest = looked + SOON - Date.now();
    if (looking || rest > 0) {
      again ||= setTimeout(() => ((again = 0), look()), Math.max(rest, SOON / 4));
      return;
    }
    looking = true;
    try {
      const answer = await fetch(url, { headers: { Accept: "application/json" }, signal: AbortSignal.timeout(30e3) });
      if (!answer.ok || answer.redirected) return; // signed out: what there is to say the page says
      known = await answer.json();
      skew = Date.parse(known.now) - Date.now();
      badge();
      title();
      if (wanted() && !document.hasFocus()) inTurn(() => notify(known.newest));
      else if (known.newest && document.hasFocus()) localStorage.setItem("notified", known.newest.id);
    } catch {
      // away: portal.js says so, and the next look is soon
    } finally {
      looking = false;
      looked = Date.now();
    }
  };

  const chooser = document.querySelector("[data-notify]");
  if (chooser) {
    const button = chooser.querySelector("button");
    const state = chooser.querySelector("[data-notify-state]");
    const show = () => {
      const denied = can && Notification.permission === "denied";
      const on = wanted();
      state.textContent = !can ? chooser.dataset.cannot : denied ? chooser.dataset.denied : on ? chooser.dataset.on : chooser.dataset.off;
      button.hidden = !can || denied;
      button.textContent = on ? chooser.dataset.turnOff : chooser.dataset.turnOn;
    };
    button.addEventListener("click", async () => {
      if (wanted()) localStorage.setItem("notify", "off");
      else if ((await Notification.requestPermission()) === "granted") {
        localStorage.setItem("notify", "on");
        localStorage.setItem("notified", known.newest?.id ?? localStorage.getItem("notified") ?? 0);
      }
      show();
    });
    chooser.hidden = false;
    show();
  }

  document.body.addEventListener("live", look);
  document.addEventListener("visibilitychange", look);
  setInterval(() => {
    title();
    if (Date.now() - looked >= (document.hidden ? EVERY.hidden : EVERY.visible)) look();
  }, 1000);
  look();
})();
