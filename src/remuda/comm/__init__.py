"""Engines that carry parcels between cells."""

from remuda.comm.base import CommManager
from remuda.comm.local import LocalComm

__all__ = ["CommManager", "LocalComm"]
