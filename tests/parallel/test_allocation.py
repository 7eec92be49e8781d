"""What a worker does with memory that it needs again in every batch."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Prints how many of a batch's 72 MB the process still has when its tensors are gone: once in the
# main thread, and once in another, as in a worker of the local engine.
PROGRAM = """
import ctypes, sys, threading
import torch
from remuda.parallel.allocation import keep_memory

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "heap", "ordblks", "smblks", "hblks", "mapped", "usmblks", "fsmblks", "uordblks",
        "fordblks", "keepcost")]

mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Info

def held():
    return mallinfo().heap + mallinfo().mapped

def batch(before):
    tensors = [torch.zeros(3 << 20) for _ in range(6)]
    assert held() - before > 70 << 20

def train():
    before = held()
    batch(before)
    print(held() - before >> 20)

if sys.argv[1] == "kept":
    keep_memory()
if sys.argv[2] == "main":
    train()
else:
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator is told")
@pytest.mark.parametrize("thread", ["main", "other"])
def test_a_worker_keeps_the_memory_of_a_batch_for_the_next(thread: str) -> None:
    assert megabytes_held("given back", thread) < 20
    assert megabytes_held("kept", thread) > 70


def megabytes_held(how: str, thread: str) -> int:
    command = [sys.executable, "-c", PROGRAM, how, thread]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
