"""Packages that only some commands need, and that a plain installation leaves out."""

from __future__ import annotations

from importlib.util import find_spec

from remuda.errors import RemudaError


def is_installed(module: str) -> bool:
    return find_spec(module) is not None


def require(module: str, purpose: str, package: str = "") -> None:
    """Say how to install a package of the extra `plots` where it is missing."""
    if not is_installed(module):
        raise RemudaError(
            f"{purpose} need {package or module}, which is not installed; "
            "install it with: pip install 'remuda[plots]'"
        )
