"""The signals that ask a job to stop. Importing this does not import torch."""

from __future__ import annotations

import signal

# To a terminal or a job they reach workers too, but only the master acts on them.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


def ignore_signals() -> None:
    """Leave it to the master what they mean."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
