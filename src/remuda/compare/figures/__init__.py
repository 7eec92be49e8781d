"""Figures of a comparison, fit to be printed: plain values in, the bytes of a file out.

Each is 3.4 or 7 inches wide (a column or a page), as PNG, PDF or SVG. Arms differ in colour and in
the shape of their marks, so that grey print and colour-blind readers lose nothing. Equal values
give equal bytes. matplotlib is loaded by the first figure, without pyplot.
"""

from __future__ import annotations

from remuda.compare.figures.cost import ArmCurve, cost_panels, curves
from remuda.compare.figures.forest import Difference, intervals
from remuda.compare.figures.pairs import matrix
from remuda.compare.figures.ranks import critical_difference
from remuda.compare.figures.seeds import Bracket, DotPanel, dots
from remuda.compare.figures.style import FORMS, Form, Interval, p_text, stars

__all__ = [
    "FORMS",
    "ArmCurve",
    "Bracket",
    "Difference",
    "DotPanel",
    "Form",
    "Interval",
    "cost_panels",
    "critical_difference",
    "curves",
    "dots",
    "intervals",
    "matrix",
    "p_text",
    "stars",
]
