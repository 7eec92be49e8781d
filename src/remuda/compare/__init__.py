"""Comparisons: arms times seeds at an equal budget, with statistics."""
