"use strict";
// What an item of a chart says appears at the pointer.
(() => {
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("aria-hidden", "true"); // the table of the chart has the same
  tip.hidden = true;
  document.body.append(tip);

  function show(item, event) {
    const [first, ...rest] = item.dataset.hover.split("\n");
    const name = document.createElement("b");
    name.textContent = first;
    tip.replaceChildren(name, ...rest.flatMap((line) => [document.createElement("br"), line]));
    tip.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = tip;
    const left = Math.min(event.clientX + 12, document.documentElement.clientWidth - width - 4);
    const below = event.clientY + 16;
    tip.style.left = `${Math.max(left, 4)}px`;
    tip.style.top = `${below + height < innerHeight ? below : Math.max(event.clientY - height - 12, 4)}px`;
  }

  document.addEventListener("pointermove", (event) => {
    const item = event.buttons ? null : event.target.closest?.("[data-hover]");
    if (item) show(item, event);
    else tip.hidden = true;
  });
  for (const name of ["scroll", "pointerleave"]) document.addEventListener(name, () => { tip.hidden = true; }, true);
})();
