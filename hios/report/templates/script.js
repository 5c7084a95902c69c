"use strict";
(() => {
  const config = {
    displaylogo: false,
    responsive: true,
    // The last one would upload the chart.
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "sendChartToCloud"],
    plotlyServerURL: "",
  };
  // A4 landscape less its margins: paper does not tell its width before it is laid out.
  const printWidth = 1000;

  function draw(chart) {
    if (chart.dataset.drawn) {
      Plotly.Plots.resize(chart);
      return;
    }
    chart.dataset.drawn = "yes";
    const figure = JSON.parse(document.getElementById(`${chart.id}-data`).textContent);
    Plotly.newPlot(chart, figure.data, figure.layout, config);
  }

  const visible = () => [...document.querySelectorAll(".chart")].filter((chart) => !chart.closest("details:not([open])"));

  // A chart in a closed element is drawn when the element opens: drawing all of them would delay the page.
  for (const details of document.querySelectorAll("details")) {
    details.addEventListener("toggle", () => details.open && details.querySelectorAll(".chart").forEach(draw));
  }
  visible().forEach(draw);

  addEventListener("beforeprint", () => visible().forEach((chart) => Plotly.relayout(chart, { width: printWidth })));
  addEventListener("afterprint", () => visible().forEach((chart) => Plotly.relayout(chart, { width: null, autosize: true })));
})();
