"""Files: written whole or not at all, read only as far as they may cost, folders locked."""

from remuda.files.atomic import digest, sync, to_json, write_atomically, write_json
from remuda.files.disk import Content
from remuda.files.limits import check_memory, machine_memory, memory_limit
from remuda.files.locks import LOCK, Lock, is_locked, lock
from remuda.files.regular import NotRegularError, open_regular, read_regular, real_folder
from remuda.files.stored import read_stored
from remuda.files.text import plain_markdown, value_text

VERSION = "0.1.0"  # of remuda; run folders and ensembles say which version wrote them

__all__ = [
    "LOCK",
    "VERSION",
    "Content",
    "Lock",
    "NotRegularError",
    "check_memory",
    "digest",
    "is_locked",
    "lock",
    "machine_memory",
    "memory_limit",
    "open_regular",
    "plain_markdown",
    "read_regular",
    "read_stored",
    "real_folder",
    "sync",
    "to_json",
    "value_text",
    "write_atomically",
    "write_json",
]
