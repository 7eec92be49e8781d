"""Packages that only some commands need, and that a plain installation leaves out."""

from __future__ import annotations

from importlib.util import find_spec

from remuda.errors import RemudaError


def require(package: str, purpose: str) -> None:
    """Say how to install a package of the extra `plots` where it is missing."""
    if find_spec(package) is None:
        raise RemudaError(
            f"{purpose} need {package}, which is not installed; "
            "install it with: pip install 'remuda[plots]'"
        )
