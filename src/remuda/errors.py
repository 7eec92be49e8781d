"""Errors that are the user's to fix: shown as plain lines, never as a traceback."""

from collections.abc import Iterable

_LONGEST_LINE = 2400  # characters of a message
STOPPED = 75  # exit code of a run that SIGUSR1 stopped: everything is saved, start it again


class RemudaError(Exception):
    """Base of every error whose message is written for the user, in one line or several.

    What names and values bring along that a terminal would obey is shown, line ends included; of
    a line that they make very long, the middle is left out.
    """

    exit_code = 2

    def __init__(self, *lines: str) -> None:
        super().__init__(*lines)
        self.lines = tuple(_without_middle(visible(line)) for line in lines)

    def __str__(self) -> str:
        return "\n".join(self.lines)


class ConfigError(RemudaError):
    """A configuration that cannot run: names the key, the value and what is allowed."""


class DataError(RemudaError):
    """A data file that is missing, damaged or of the wrong kind: names the file."""


class StoreError(RemudaError):
    """A run folder, checkpoint or ensemble that cannot be read or written: names the path."""

    exit_code = 3


class GoneError(StoreError):
    """A run folder that was taken away from the process that trains in it."""


class DamagedError(StoreError):
    """A file that can be read but is not what it should be; reading it again will not help."""


class NewerFormatError(StoreError):
    """A file written by a newer remuda: it is sound, so it must not be skipped or thrown away."""


def shape_text(shape: Iterable[int]) -> str:
    """A shape as messages and tables write it: 1x28x28."""
    return "x".join(map(str, shape))


def visible(text: str) -> str:
    """The same text in one line, with all that a terminal would obey written out: \\x1b, \\n.

    That is what has no picture of its own: control characters and escapes, line ends, what turns
    or hides text, halves of characters.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escape(one) for one in text)


def _without_middle(line: str) -> str:
    if len(line) <= _LONGEST_LINE:
        return line
    half = _LONGEST_LINE // 2
    return f"{line[:half]} ... {line[-half:]}"


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
