// Replaces the parts of the screen that have changed, and leaves the rest, the focus, the scrolling
// and a selection as they are.
"use strict";
(() => {
  const address = document.body.dataset.stream;
  const screen = document.getElementById("screen");
  const hold = document.getElementById("hold");
  const connection = document.getElementById("connection");
  if (!address || !screen) return;
  let newest = null;

  function isRead() {
    const selected = window.getSelection();
    return selected && !selected.isCollapsed && screen.contains(selected.anchorNode);
  }

  function show() {
    if (newest === null || hold.getAttribute("aria-pressed") === "true" || isRead()) return;
    const fresh = document.createElement("template");
    fresh.innerHTML = newest;
    newest = null;
    const focused = screen.contains(document.activeElement) ? document.activeElement.id : "";
    const before = new Map([...screen.children].map((part) => [part.id, part]));
    const parts = [...fresh.content.children].map((part) => {
      const former = before.get(part.id);
      return former && former.outerHTML === part.outerHTML ? former : part;
    });
    const isSame = parts.length === screen.children.length &&
      parts.every((part, at) => part.id === screen.children[at].id);
    if (isSame) {
      parts.forEach((part, at) => {
        if (part !== screen.children[at]) screen.children[at].replaceWith(part);
      });
    } else {
      screen.replaceChildren(...parts);
    }
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  }

  hold.hidden = false;
  hold.addEventListener("click", () => {
    const held = hold.getAttribute("aria-pressed") !== "true";
    hold.setAttribute("aria-pressed", String(held));
    show();
  });
  document.addEventListener("selectionchange", show);

  const stream = new EventSource(address);
  stream.addEventListener("message", (event) => {
    connection.textContent = "";
    newest = event.data;
    show();
  });
  stream.addEventListener("error", () => {
    connection.textContent = stream.readyState === EventSource.CLOSED
      ? "The page’s server sends nothing more; what is shown is old: reload the page."
      : "The page’s server does not answer; what is shown is old.";
  });
})();
