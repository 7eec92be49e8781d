"""Help, usage errors and exit codes of the command itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from remuda.cli import app
from tests.cli.in_process import remuda

COMMANDS = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
HEAVY = (
    *("torch", "numpy", "scipy", "sklearn", "matplotlib", "PIL"),
    *("yaml", "pydantic", "safetensors"),
)


def loaded_by(*calls: tuple[str, ...]) -> tuple[str, set[str]]:
    """What a fresh interpreter prints on these calls of `remuda`, and the modules it loads."""
    code = (
        "import sys\nfrom remuda.cli import main\n"
        f"for call in {calls!r}:\n"
        "    sys.argv = ['remuda', *call]\n"
        "    try:\n        main()\n"
        "    except SystemExit as end:\n        assert not end.code\n"
        "print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout, set(done.stderr.split())


def test_help_of_every_command_loads_nothing_heavy() -> None:
    printed, modules = loaded_by(("--help",), *((command, "--help") for command in COMMANDS))
    assert printed.count("Usage: ") == 1 + len(COMMANDS)
    # typer itself may load pydantic for a command's options, so torch and co. are what counts.
    assert not modules & (set(HEAVY) - {"pydantic"})


def test_configuration_is_printed_without_torch() -> None:
    _, modules = loaded_by(("presets",), ("config", "cellular-mnist", "grid=3x3"))
    assert not modules & {"torch", "numpy", "scipy", "matplotlib"}


def test_the_overview_shows_every_command_with_an_uncut_summary(tmp_path: Path) -> None:
    code, output, _ = remuda(tmp_path, "--help")
    assert code == 0
    listed = output[output.index("Commands:") :].splitlines()[1 : 1 + len(COMMANDS)]
    assert sorted(line.split()[0] for line in listed) == COMMANDS
    assert not [line for line in listed if "..." in line]
    assert remuda(tmp_path) == (0, output, "")


@pytest.mark.slow
def test_the_installed_command_answers() -> None:
    command = Path(sys.executable).with_name("remuda")
    if not command.exists():
        pytest.skip("remuda is not installed beside this Python")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"remuda \d+\.\d+\.\d+\n", done.stdout)


WRONG_CALLS = {
    "trian": "No such command 'trian'",
    "train --bogus": "No such option: --bogus (see remuda train --help)",
    "sample": "Missing argument 'RUN' (see remuda sample --help)",
    "sample x -n 0": "0; allowed: a whole number, at least 1 (see remuda sample --help)",
    "sample x -n many": "many; allowed: a whole number, at least 1",
    "sample x --seed -1": "-1; allowed: a whole number, at least 0",
    "train --restarts -1": "-1; allowed: a whole number, at least 0",
    "train --stuck 0": "0; allowed: a whole number, at least 1",
    "resume x --stuck soon": "soon; allowed: a whole number, at least 1",
    "slurm --nodes 0": "0; allowed: a whole number, at least 1",
    "score x -n -5": "-5; allowed: a whole number, at least 20 (see remuda score --help)",
    "gam x y -n 5": "5; allowed: a whole number, at least 1000",
    "ais x --chains 0": "0; allowed: a whole number, at least 1",
    "train --engine foo": "--engine=foo: unknown; allowed: auto, local, process, mpi",
    "train --engine loca": "--engine=loca: unknown; did you mean local? allowed: auto, local,",
    "train --workers -3": "--workers=-3: allowed: auto, or a whole number, at least 1",
    "train --workers 2 --engine local": "--workers=2: --engine=local has one worker; allowed: 1",
    "slurm --time 5x": "--time=5x: allowed: MINUTES, H:M:S, or D-H:M:S",
}


@pytest.mark.parametrize("call", WRONG_CALLS)
def test_a_wrong_call_is_one_line_and_exit_code_2(call: str, tmp_path: Path) -> None:
    code, output, errors = remuda(tmp_path, *call.split())
    assert (code, output) == (2, "")
    assert errors.startswith("remuda: ")
    assert WRONG_CALLS[call] in errors
    assert len(errors.splitlines()) == 1


@pytest.mark.slow
def test_a_closed_pipe_is_not_an_error() -> None:
    code = "from remuda.cli import main; main()"
    command = f"{sys.executable} -c '{code}' config | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert done.stdout.startswith("name: quickstart")
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", ["presets", "config"])
def test_a_full_standard_output_is_one_line(command: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "remuda", command],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 3
    assert done.stderr == "remuda: the output cannot be written: No space left on device\n"
