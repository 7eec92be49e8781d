"""matplotlib and scikit-learn may be missing: one line says how to install them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from remuda.analysis.figures import class_bars
from remuda.analysis.overlays import embed
from remuda.errors import RemudaError

INSTALL = r"which is not installed; install it with: pip install 'remuda\[plots\]'$"


def test_a_figure_without_matplotlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(RemudaError, match=f"^figures need matplotlib, {INSTALL}"):
        class_bars(["0", "1"], [0.5, 0.5], [0.5, 0.5], "classes")


def test_tsne_without_scikit_learn_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(RemudaError, match=f"^t-SNE plots need scikit-learn, {INSTALL}"):
        embed([np.zeros((9, 2), np.float32)], seed=0)


@pytest.mark.slow
def test_the_analyses_load_neither_until_they_draw() -> None:
    code = (
        "import sys, remuda.analysis.figures, remuda.analysis.overlays, remuda.analysis.battle; "
        "print([name for name in ('matplotlib', 'sklearn') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
