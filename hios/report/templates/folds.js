// What few readers need is closed until it is asked for. Without this script, and on paper, it is open.
(() => {
  for (const fold of document.querySelectorAll("details.folded")) fold.open = false;

  // A link opens what its target is in.
  function reveal(address) {
    const target = document.getElementById(decodeURIComponent(address.slice(1)));
    for (let fold = target?.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    return target;
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href^="#"]');
    if (link) reveal(link.getAttribute("href"));
  });
  // On a large page, what comes near the window gets its real height only then, and moves the target: it is followed
  // for half a second, or until the reader takes over.
  let target = null;
  let frames = 0;
  function settle() {
    if (frames-- <= 0) return;
    target.scrollIntoView();
    requestAnimationFrame(settle);
  }
  function follow() {
    target = reveal(location.hash);
    frames = target ? 30 : 0;
    settle();
  }
  for (const input of ["wheel", "touchstart", "pointerdown", "keydown"]) addEventListener(input, () => (frames = 0), { passive: true });
  addEventListener("hashchange", follow);
  follow();

  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details.schedule, details.picture, details.folded")].filter((details) => !details.open);
    for (const details of opened) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of opened) details.open = false;
  });
})();
