// Gantt charts zoom in time, all passes of a schedule together. Without this script they show the whole.
(() => {
  const closest = 400; // times as wide as the whole
  const svgElement = (name) => document.createElementNS(document.querySelector(".gantt svg").namespaceURI, name);

  // 1, 2 or 5 times a power of ten.
  function stepFor(span, count) {
    const raw = span / count;
    const size = 10 ** Math.floor(Math.log10(raw));
    return [1, 2, 5, 10].map((factor) => factor * size).find((step) => step >= raw * (1 - 1e-9));
  }

  const xOf = (element) => element.transform.baseVal[0].matrix.e;
  const yOf = (element) => element.transform.baseVal[0].matrix.f;

  class Plot {
    constructor(scope, identity) {
      this.origin = scope.firstElementChild;
      const [, width, height] = this.origin.querySelector("path.background").getAttribute("d").match(/h([\d.]+)v([\d.]+)/);
      this.width = Number(width);
      this.height = Number(height);
      const clip = svgElement("clipPath");
      clip.id = identity;
      const area = svgElement("rect");
      Object.entries({ x: 0, y: -20, width, height: this.height + 20 }).forEach(([name, value]) => area.setAttribute(name, value));
      clip.append(area);
      this.origin.append(clip);
      // The axes at the whole, which come back on zooming out.
      this.ticks = ["role-axis-grid", "role-axis-tick", "role-axis-label"]
        .map((name) => [...this.origin.querySelectorAll(`.${name}`)].find((group) => name !== "role-axis-label" || group.parentElement.querySelector(".role-axis-tick")))
        .map((group) => ({ group, whole: [...group.children] }));
      this.texts = [];
      this.moved = [];
      let bars = [];
      for (const marks of this.origin.querySelectorAll(".role-mark")) {
        marks.setAttribute("clip-path", `url(#${identity})`);
        if (marks.classList.contains("mark-text")) {
          [...marks.children].forEach((text, number) => this.texts.push({ text, x: xOf(text), y: yOf(text), bar: marks.children.length === bars.length ? bars[number] : null }));
          continue;
        }
        if (marks.querySelector("[data-hover]")) bars = [...marks.children];
        const inner = svgElement("g");
        inner.setAttribute("class", "zoomed");
        inner.append(...marks.childNodes);
        marks.append(inner);
        this.moved.push(inner);
      }
    }

    show(start, finish, end) {
      const scale = end / (finish - start);
      const shift = (-start / end) * this.width * scale;
      for (const inner of this.moved) inner.setAttribute("transform", `matrix(${scale} 0 0 1 ${shift} 0)`);
      for (const { text, x, y, bar } of this.texts) {
        text.setAttribute("transform", `translate(${shift + scale * x},${y})`);
        if (bar) text.setAttribute("opacity", text.getComputedTextLength() + 6 <= bar.getBBox().width * scale ? "1" : "0");
      }
      const step = stepFor(finish - start, 8);
      const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
      const times = [];
      for (let number = Math.ceil(start / step - 1e-9); number * step <= finish; number++) times.push(number * step);
      for (const { group, whole } of this.ticks) {
        group.replaceChildren(...(scale === 1 ? whole : times.map((time) => this.tick(whole, time, (time - start) / (finish - start), decimals))));
      }
    }

    tick(whole, time, share, decimals) {
      const tick = whole[Math.min(1, whole.length - 1)].cloneNode(true);
      tick.setAttribute("transform", `translate(${share * this.width},${yOf(tick)})`);
      if (tick.tagName === "text") {
        tick.textContent = time.toFixed(decimals);
        tick.setAttribute("text-anchor", "middle");
      }
      return tick;
    }
  }

  function enable(figure) {
    const svg = figure.querySelector("svg");
    const end = Number(figure.dataset.end);
    const plots = [...svg.querySelectorAll("g.role-scope")].map((scope, number) => new Plot(scope, `${svg.id}-zoom-${number}`));
    const view = { start: 0, finish: end };

    function show(start, finish) {
      const span = Math.min(Math.max(finish - start, end / closest), end);
      view.start = Math.min(Math.max(start, 0), end - span);
      view.finish = view.start + span;
      for (const plot of plots) plot.show(view.start, view.finish, end);
    }
    const around = (factor, share = 0.5) => {
      const span = (view.finish - view.start) * factor;
      const middle = view.start + share * (view.finish - view.start);
      show(middle - share * span, middle + (1 - share) * span);
    };
    const whole = () => show(0, end);

    const controls = document.createElement("p");
    controls.className = "controls";
    for (const [name, label, action] of [["+", "zoom in", () => around(0.5)], ["−", "zoom out", () => around(2)], ["whole", "show the whole", whole]]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = name;
      button.setAttribute("aria-label", `${label}: ${svg.getAttribute("aria-label")}`);
      button.addEventListener("click", action);
      controls.append(button);
    }
    figure.prepend(controls);

    // A drag over a plot selects a time.
    let from = null;
    const mark = svgElement("rect");
    mark.setAttribute("class", "selection");
    const place = (plot, event) => {
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(plot.origin.getScreenCTM().inverse());
      return Math.min(Math.max(point.x, 0), plot.width);
    };
    svg.addEventListener("pointerdown", (event) => {
      const plot = plots.find((one) => one.origin.contains(event.target));
      if (!plot || event.button !== 0 || event.pointerType === "touch") return;
      from = { plot, x: place(plot, event) };
      svg.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    svg.addEventListener("pointermove", (event) => {
      if (!from) return;
      const x = place(from.plot, event);
      const values = { x: Math.min(x, from.x), y: 0, width: Math.abs(x - from.x), height: from.plot.height };
      Object.entries(values).forEach(([name, value]) => mark.setAttribute(name, value));
      from.plot.origin.append(mark);
    });
    svg.addEventListener("pointerup", (event) => {
      if (!from) return;
      const [first, last] = [from.x, place(from.plot, event)].sort((a, b) => a - b);
      const time = (x) => view.start + (x / from.plot.width) * (view.finish - view.start);
      if (last - first > 4) show(time(first), time(last));
      mark.remove();
      from = null;
    });
    svg.addEventListener("pointercancel", () => { mark.remove(); from = null; });
    svg.addEventListener("dblclick", whole);
    addEventListener("beforeprint", whole);
  }

  // Charts of a closed element are made ready when it opens: doing all of them would delay the page.
  const ready = new WeakSet();
  const prepare = (element) => element.querySelectorAll(".gantt").forEach((figure) => {
    if (!ready.has(figure)) enable(figure);
    ready.add(figure);
  });
  const schedules = [...document.querySelectorAll("details.schedule")];
  for (const details of schedules) {
    details.addEventListener("toggle", () => details.open && prepare(details));
    if (!details.classList.contains("fastest")) details.open = false;
  }
  for (const figure of document.querySelectorAll(".gantt")) {
    if (!figure.closest("details:not([open])")) prepare(figure.parentElement);
  }
})();
