// The operator under the pointer stands out with its lines and neighbors.
for (const graph of document.querySelectorAll("svg.graph")) {
  let lines = null;
  let shown = [];

  // Looked up once, when the pointer first comes: large graphs have thousands of lines.
  function linesOf(operator) {
    if (!lines) {
      lines = new Map();
      for (const edge of graph.querySelectorAll(".edge")) {
        for (const end of [edge.dataset.from, edge.dataset.to]) {
          if (!lines.has(end)) lines.set(end, []);
          lines.get(end).push(edge);
        }
      }
    }
    return lines.get(operator) ?? [];
  }

  function mark(element, ...names) {
    element.classList.add(...names);
    shown.push(element);
  }

  function clear() {
    for (const element of shown) element.classList.remove("here", "made", "taken");
    shown = [];
    graph.classList.remove("following");
  }

  graph.addEventListener("pointerover", (event) => {
    const operator = event.target.closest(".operator");
    if (!operator) return;
    clear();
    graph.classList.add("following");
    mark(operator, "here");
    const number = operator.dataset.operator;
    for (const edge of linesOf(number)) {
      const made = edge.dataset.from === number;
      mark(edge, made ? "made" : "taken");
      const other = made ? edge.dataset.to : edge.dataset.from;
      mark(graph.querySelector(`[data-operator="${other}"]`), "here");
    }
  });
  graph.addEventListener("pointerout", (event) => {
    if (!event.relatedTarget?.closest?.(".operator")) clear();
  });
}
