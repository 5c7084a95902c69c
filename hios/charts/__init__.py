"""Charts in one style for the report, `hios show`, `hios draw` and the figures of the papers.

    theme      colors, fonts and the color of every operator type
    marks      what is measured here, predicted, published or a bound, and how each is drawn
    rendering  Altair charts as SVG and PDF, without a browser; tables as LaTeX documents

Altair, vl-convert and pandas are imported by functions, not by modules: text on a terminal needs neither.
"""
