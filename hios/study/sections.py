"""The sections of the papers that figures and tables are in."""

from __future__ import annotations

from collections.abc import Mapping

#: Sections by paper, each with its figures and tables.
_SECTIONS: Mapping[str, Mapping[str, str]] = {
    "hios": {
        "II. Background and Motivation": "fig1 fig2",
        "IV. Algorithm Design": "fig4 fig5",
        "V. Simulation": "fig7 fig8 fig9 fig10 fig11 ablation",
        "VI. Experiments": "fig12 fig13 fig14",
    },
    "ios": {
        "1. Introduction": "fig1 fig2",
        "4. Methods": "tab1",
        "5. Implementation Setup": "tab2",
        "6. Experiments": "fig6 fig7 fig8",
        "7. Ablation Study": "fig9 fig10 fig11 fig12 tab3",
        "Appendix": "fig13 fig14 fig15 fig16",
    },
    "lios": {
        "III. Motivation": "fig4 tab2",
        "IV. Method": "tab3",
        "V. Experimental Setup": "tab4",
        "VI. Experimental Results": "fig7 fig8 fig9 tab5 tab6 tab7",
    },
    "opara": {
        "2. Background and Motivation": "fig1 fig2 fig3",
        "5. Performance Evaluation": "fig5 fig6 fig7 fig8 fig9 tab1",
    },
    "top": {"VI. Evaluation": "fig13 fig14 fig15 fig16 fig17 fig18 fig20 fig21 fig22 fig23 fig24 fig26 fig27"},
}
_OF = {
    f"{paper}_{place}": section
    for paper, sections in _SECTIONS.items()
    for section, places in sections.items()
    for place in places.split()
}


def section_of(figure: str) -> str:
    """The section that a figure or table is in; "Other" where that is not known.

    Args:
        figure: its id, such as ``hios_fig9``.
    """
    return _OF.get(figure, "Other")
