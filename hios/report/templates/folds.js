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
  const follow = () => reveal(location.hash)?.scrollIntoView();
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
