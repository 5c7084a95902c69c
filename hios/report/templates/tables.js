// Tables sort by a button in each head and can be reduced to one model. Without this script they are as they are.
(() => {
  function valueOf(cell) {
    const text = cell.dataset.value ?? cell.textContent.trim();
    const number = Number(text);
    return text !== "" && !Number.isNaN(number) ? number : text;
  }

  // Numbers before texts, and cells without a value (a dash) at the end, whichever way a table is sorted.
  function compare(one, other, direction) {
    const [a, b] = [valueOf(one), valueOf(other)];
    const rank = (value) => (typeof value === "number" ? 0 : value === "–" ? 2 : 1);
    if (rank(a) !== rank(b)) return rank(a) - rank(b);
    return direction * (typeof a === "number" ? a - b : a.localeCompare(b));
  }

  function sort(table, column) {
    const heads = [...table.tHead.rows[0].cells];
    const ascending = heads[column].getAttribute("aria-sort") !== "ascending";
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[column].setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => compare(a.cells[column], b.cells[column], ascending ? 1 : -1));
    table.tBodies[0].append(...rows);
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(table, column));
      head.append(button);
    });
  }

  for (const filter of document.querySelectorAll(".filter")) {
    filter.hidden = false;
    filter.querySelector("select").addEventListener("change", (event) => {
      const model = event.target.value;
      for (const row of filter.parentElement.querySelectorAll("tr[data-model]")) {
        row.hidden = model !== "" && row.dataset.model !== model;
      }
    });
  }
})();
