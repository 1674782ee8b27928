"use strict";
for (const place of document.querySelectorAll(".chart")) {
  const name = place.dataset.figure;
  const figure = JSON.parse(document.getElementById(name).textContent);
  Plotly.newPlot(place, figure.data, figure.layout, {
    responsive: true,
    displaylogo: false,
    // Named one by one, as plotly's own choice has a button that uploads the chart.
    modeBarButtons: [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]],
    toImageButtonOptions: { filename: name, scale: 2 },
    plotlyServerURL: "",
    showSendToCloud: false,
    typesetMath: false,
  });
}
