"""How a worker's process keeps the memory that training uses again in every batch."""

from __future__ import annotations

import ctypes

# Parameters of glibc's mallopt, from malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LARGEST = 32 << 20  # the highest threshold that glibc takes
_KEPT = 2**31 - 1  # as much as fits into the parameter


def keep_memory() -> None:
    """Do not give the activations of a batch back to the system, only to ask for them again.

    Otherwise the memory of every large tensor is new to the process and is cleared page by page,
    which costs up to a fifth of a convolutional batch. A process then stays as large as its largest
    batch has made it, so it is for processes that only train, not for a user's own. No other
    allocator than glibc's is touched.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(_MMAP_THRESHOLD, _LARGEST)
    mallopt(_TRIM_THRESHOLD, _KEPT)
    # The trainer is a thread; an arena of its own would be trimmed all the same.
    mallopt(_ARENA_MAX, 1)
