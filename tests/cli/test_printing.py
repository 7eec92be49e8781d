"""Names and messages of others reach the terminal as text, whichever way they are printed."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from remuda import cli
from remuda.cli.printing import complain, say
from remuda.cli.tables import plain_table, workers_table
from remuda.cli.view import PlainView
from remuda.parallel.protocol import Liveness, State, WorkerStatus
from remuda.runs.store import RunFolder
from tests.cli.in_process import remuda

ANY = st.text(
    st.characters(exclude_categories=()) | st.sampled_from("\x1b\x9b\n\r[]/=\u202e\ud800")
)
HOSTILE = "\x1b[31m[red]\x1b]8;;http://evil\x07[link=http://evil]x[/]\u202e\r\n" + os.fsdecode(
    b"\xff"
)
SHOWN = r"\x1b[31m[red]\x1b]8;;http://evil\x07[link=http://evil]x[/]\u202e\r\n\udcff"
# Own escapes of a coloured terminal are taken away before anything is looked for.
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def shown(what: RenderableType, *, colour: bool = True) -> str:
    file = io.StringIO()
    console = Console(
        file=file, width=1000, force_terminal=colour, color_system="standard" if colour else None
    )
    console.print(what)
    return file.getvalue()


def harmless(text: str) -> bool:
    text.encode()
    return all(one.isprintable() or one == "\n" for one in ESCAPES.sub("", text))


@given(ANY)
def test_tables_show_any_cell_and_title_in_one_line(text: str) -> None:
    title = text.replace("\n", "")  # our own titles may be of two lines
    table = plain_table("first", title)
    table.add_row(text, "last")
    printed = shown(table)
    assert harmless(printed)
    assert len(printed.splitlines()) == 2


def test_markup_in_cells_is_text() -> None:
    table = plain_table("[b]run[/]", "x")
    table.add_row(HOSTILE, "[link=http://evil]y[/link]")
    printed = ESCAPES.sub("", shown(table))
    assert "[b]run[/]" in printed
    assert SHOWN in printed
    assert "[link=http://evil]y[/link]" in printed


@given(ANY)
def test_a_worker_may_call_its_host_anything(text: str) -> None:
    worker = WorkerStatus(1, text, 2, State.PROCESSING, Liveness.DEAD, 1.0, (0,), {0: 1})
    printed = shown(workers_table([worker], 1000))
    assert harmless(printed)
    assert len(printed.splitlines()) == 2


@given(ANY)
def test_views_show_any_warning_in_one_line(text: str) -> None:
    file = io.StringIO()
    view = PlainView(Console(file=file, force_terminal=True, color_system="standard"))
    view.warned(text)
    view.prepared(text)
    assert harmless(file.getvalue())
    assert file.getvalue().count("\n") == 2


def test_lines_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    say("a", HOSTILE)
    say()
    complain("first", HOSTILE, then="remuda\nresume")
    output, errors = capsys.readouterr()
    assert output == f"a\n{SHOWN}\n\n"
    assert errors == f"remuda: first\nremuda: {SHOWN}\n  remuda\\nresume\n"


def test_commands_print_by_no_other_way() -> None:
    """YAML and job scripts are files, whose writers quote what must be quoted."""
    found = []
    for path in sorted(Path(cli.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
                found.append((path.name, ast.unparse(node)))
    allowed = [
        ("cluster.py", "print(job_script("),
        ("inputs.py", "print(render("),
        ("printing.py", "print("),
    ]
    assert found
    assert [one for one in found if not any(_starts(one, start) for start in allowed)] == []


def _starts(found: tuple[str, str], allowed: tuple[str, str]) -> bool:
    return found[0] == allowed[0] and found[1].startswith(allowed[1])


@pytest.mark.parametrize("command", ["sample", "score", "resume", "status", "runs", "curves"])
def test_a_run_folder_with_a_hostile_name_is_shown(
    command: str, trained: tuple[Path, str], tmp_path: Path
) -> None:
    folder = tmp_path / "runs" / HOSTILE.replace("/", "")
    shutil.copytree(trained[0], folder)
    words = [command, str(folder.parent if command == "runs" else folder)]
    code, output, errors = remuda(tmp_path, *words)
    assert code == (2 if command == "curves" else 0), errors
    assert harmless(output + errors)
    if command not in ("sample", "score"):
        assert SHOWN.replace("/", "") in output + errors


def test_what_the_files_of_a_run_say_is_shown(trained: tuple[Path, str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained[0], run)
    folder, name = RunFolder(run), HOSTILE[:-1]  # JSON is UTF-8
    worker = {"worker": 1, "host": name, "pid": 3, "state": "processing", "verdict": "delayed"}
    status = {"time": 0.0, "rounds": 9, "completed": 1, "epoch": 2}
    with folder.lock():
        workers = [{**worker, "heard": 0.5, "cells": [0], "rounds": {"0": 1}}]
        folder.write_status({**status, "workers": workers})
        code, output, errors = remuda(tmp_path, "status", str(run))
    assert code == 0, errors
    assert harmless(output)
    assert r"\x1b" in output
    (run / "result.json").write_text(json.dumps({"scores": {"values": {name: "x"}}}))
    code, output, errors = remuda(tmp_path, "sample", str(run))
    assert code == 3
    assert harmless(errors)
    assert len(errors.splitlines()) == 1
    assert r"\x1b[31m[red]" in errors


def test_arguments_are_shown_in_messages(tmp_path: Path) -> None:
    for words in (["sample", HOSTILE], ["train", HOSTILE], ["gam", "a", "--exclusion", HOSTILE]):
        code, _, errors = remuda(tmp_path, *words)
        assert code in (2, 3)
        assert harmless(errors)
        assert len(errors.splitlines()) == 1
        assert r"\x1b[31m[red]" in errors
