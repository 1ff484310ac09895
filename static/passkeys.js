// Forms of passkeys: the browser makes or finds one, and the form is sent with it. Where there are none (an address that is a
// number, a page without TLS, an old browser) such a form stays hidden.
"use strict";
(() => {
  const possible = window.isSecureContext && window.PublicKeyCredential && !/^[\d.]+$|:/.test(location.hostname);
  const optionsOf = async (form) => {
    if (form.dataset.options) return JSON.parse(document.getElementById(form.dataset.options).textContent);
    const answer = await fetch(form.action, { headers: { Accept: "application/json" }, cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    return (await answer.json()).request_options;
  };
  for (const form of document.querySelectorAll("form[data-passkey]")) {
    const missing = document.querySelector("[data-passkey-missing]");
    form.hidden = !possible;
    if (missing) missing.hidden = possible;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      event.stopPropagation();
      const failed = form.querySelector("[data-passkey-failed]");
      failed.hidden = true;
      try {
        const options = await optionsOf(form);
        const credential = await window.webauthnJSON[form.dataset.passkey](options);
        form.elements.credential.value = JSON.stringify(credential);
        form.submit();
      } catch {
        failed.hidden = false;
      }
    });
  }
})();
