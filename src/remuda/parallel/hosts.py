"""What a process says of the host that it is on."""

from __future__ import annotations

import platform

import torch

from remuda.files import machine_memory
from remuda.parallel.launch import usable_cores
from remuda.parallel.protocol import HostInfo
from remuda.runs.machine import this_machine


def this_host() -> HostInfo:
    """Its name, what it has, and the bits that it computes."""
    devices = map(torch.cuda.get_device_name, range(torch.cuda.device_count()))
    return HostInfo(
        platform.node(), usable_cores(), machine_memory(), tuple(devices), this_machine()
    )
