// One drawing in the window: zoom and pan by its viewBox. Without this script it scrolls.
(() => {
  const viewer = document.querySelector(".viewer");
  const graph = viewer.querySelector("svg.graph");
  const whole = { width: graph.viewBox.baseVal.width, height: graph.viewBox.baseVal.height };
  const closest = 4;
  const view = { x: 0, y: 0, scale: 1 };

  const smallest = () => Math.min(viewer.clientWidth / whole.width, viewer.clientHeight / whole.height, 1);

  function show() {
    const width = viewer.clientWidth / view.scale;
    const height = viewer.clientHeight / view.scale;
    // What is smaller than the window stays in its middle, what is larger does not leave it.
    const within = (at, length, total) => (length >= total ? (total - length) / 2 : Math.min(Math.max(at, 0), total - length));
    view.x = within(view.x, width, whole.width);
    view.y = height >= whole.height ? 0 : within(view.y, height, whole.height);
    graph.setAttribute("viewBox", `${view.x} ${view.y} ${width} ${height}`);
  }

  function zoom(factor, x, y) {
    const scale = Math.min(Math.max(view.scale * factor, smallest()), closest);
    view.x += x / view.scale - x / scale;
    view.y += y / view.scale - y / scale;
    view.scale = scale;
    show();
  }

  const middle = (factor) => zoom(factor, viewer.clientWidth / 2, viewer.clientHeight / 2);
  const views = {
    width: () => Object.assign(view, { x: 0, y: 0, scale: Math.min(viewer.clientWidth / whole.width, 1.5) }),
    whole: () => Object.assign(view, { x: 0, y: 0, scale: smallest() }),
    in: () => middle(1.25),
    out: () => middle(0.8),
  };

  for (const button of document.querySelectorAll("[data-view]")) {
    button.addEventListener("click", () => {
      views[button.dataset.view]();
      show();
    });
  }
  viewer.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = viewer.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 500), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });

  // A drag moves the drawing; two or three clicks select text.
  viewer.addEventListener("mousedown", (event) => event.detail === 1 && event.preventDefault());
  let held = null;
  viewer.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    held = { x: event.clientX, y: event.clientY };
    viewer.setPointerCapture(event.pointerId);
  });
  viewer.addEventListener("pointermove", (event) => {
    if (!held) return;
    view.x -= (event.clientX - held.x) / view.scale;
    view.y -= (event.clientY - held.y) / view.scale;
    held = { x: event.clientX, y: event.clientY };
    show();
  });
  for (const end of ["pointerup", "pointercancel"]) viewer.addEventListener(end, () => { held = null; });

  function start() {
    viewer.classList.add("moving");
    graph.removeAttribute("width");
    graph.removeAttribute("height");
    views.width();
    show();
  }
  addEventListener("resize", show);
  addEventListener("beforeprint", () => {
    viewer.classList.remove("moving");
    graph.setAttribute("viewBox", `0 0 ${whole.width} ${whole.height}`);
  });
  addEventListener("afterprint", () => {
    viewer.classList.add("moving");
    show();
  });
  start();
})();
