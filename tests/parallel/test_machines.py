"""Machines that compute other bits than each other: said in one line, or refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from remuda.config.root import Exactness
from remuda.errors import ConfigError
from remuda.parallel import training
from remuda.parallel.commands import (
    AnnounceStart,
    BeginTerm,
    Command,
    Fail,
    StartWorker,
)
from remuda.parallel.engines import Engine
from remuda.parallel.master_state import MasterState, Phase
from remuda.parallel.messages import Hello, decode
from remuda.parallel.protocol import HostInfo, describe_hosts, find_difference
from remuda.runs.machine import this_machine
from remuda.runs.records import Machine
from remuda.runs.store import RunFolder
from remuda.runs.threads import threads
from tests.parallel.faulty import ANOTHER, FaultyEngine
from tests.parallel.master_states import TIMEOUTS, hello, only, plan, warnings
from tests.parallel.runs import QUICK, Remembering, check_equal, check_nothing_is_left, settings

EPYC = Machine(processor="EPYC", capability="AVX2", fingerprint="e" * 16)
XEON = Machine(processor="Xeon", capability="AVX512", fingerprint="f" * 16)
# Another name, the same bits.
TWIN = Machine(processor="Ryzen", capability="AVX2", fingerprint="e" * 16)


def on(host: str, machine: Machine | None) -> HostInfo:
    return HostInfo(host, 8, machine=machine)


def said(worker: int, machine: Machine | None) -> Hello:
    return hello(worker).model_copy(update={"machine": machine})


def begun(
    master: Machine | None, workers: list[Machine | None], exact: Exactness = "warn"
) -> tuple[MasterState, list[Command]]:
    """A run whose workers have all said hello, and what followed from the last one's."""
    the_plan = replace(plan(), master=on("home", master), exact=exact)
    state = MasterState(the_plan, TIMEOUTS, 0.0)
    for worker in range(1, len(workers) + 1):
        state.worker_started(worker)
    state.restored(0, 0.0)
    commands: list[Command] = []
    for worker, machine in enumerate(workers, 1):
        commands = state.handle(worker, said(worker, machine), 0.0)
    return state, commands


def test_alike_are_those_with_equal_fingerprints_and_those_that_do_not_say() -> None:
    assert find_difference([]) is None
    assert find_difference([on("a", None), on("b", EPYC), on("c", TWIN), on("d", None)]) is None


def test_a_difference_names_hosts_and_processors_of_every_kind() -> None:
    infos = [on("a", EPYC), on("b", XEON), on("a", EPYC), on("c", XEON)]
    assert find_difference(infos) == (
        "not all machines of this run compute the same bits: "
        f"EPYC, AVX2, fingerprint {'e' * 16} (a); Xeon, AVX512, fingerprint {'f' * 16} (b, c)"
    )


def test_of_a_thousand_hosts_a_few_are_named() -> None:
    infos = [on("a", EPYC), *(on(f"n{number}", XEON) for number in range(999))]
    text = find_difference(infos)
    assert text is not None
    assert text.endswith("(n0, n1, n2, n3 and 995 more)")


def test_the_processor_and_fingerprint_of_a_host_are_in_the_events() -> None:
    described = describe_hosts({1: on("a", EPYC), 2: on("b", None)})
    assert described["a"]["machine"] == EPYC.model_dump()
    assert "machine" not in described["b"]


def test_a_hello_carries_its_machine() -> None:
    assert decode(said(1, XEON).encode()) == said(1, XEON)
    assert decode(hello(1).encode()) == hello(1)


@pytest.mark.parametrize(
    ("master", "workers"),
    [(EPYC, [EPYC, XEON]), (XEON, [EPYC, EPYC]), (None, [EPYC, XEON])],
    ids=["a worker", "all workers", "unknown master"],
)
def test_a_worker_or_master_that_computes_other_bits_costs_one_warning(
    master: Machine | None, workers: list[Machine | None]
) -> None:
    state, commands = begun(master, workers)
    text = warnings(commands)
    assert text.count("\n") == 0
    assert "Xeon" in text
    assert "EPYC" in text
    assert "host-" in text
    assert "the same seed may give other weights" in text
    assert state.phase is Phase.TRAINING


@pytest.mark.parametrize("exact", ["warn", "require"])
def test_nothing_is_said_of_machines_that_are_alike(exact: Exactness) -> None:
    state, commands = begun(EPYC, [TWIN, EPYC], exact)
    assert warnings(commands) == ""
    assert state.phase is Phase.TRAINING


def test_nothing_is_said_where_it_is_to_be_ignored() -> None:
    state, commands = begun(EPYC, [XEON, EPYC], "ignore")
    assert warnings(commands) == ""
    assert state.phase is Phase.TRAINING


def test_where_exactness_is_required_a_difference_ends_the_run_before_it_trains() -> None:
    state, commands = begun(EPYC, [EPYC, XEON], "require")
    (failure,) = only(commands, Fail)
    assert isinstance(failure.error, ConfigError)
    assert str(failure.error).startswith("exact=require: not all machines")
    assert "\n" not in str(failure.error)
    assert not only(commands, BeginTerm)
    assert not only(commands, AnnounceStart)
    assert state.phase is Phase.OVER


@pytest.mark.parametrize("exact", ["warn", "require"])
def test_a_worker_that_comes_later_is_asked_too(exact: Exactness) -> None:
    state, _ = begun(EPYC, [EPYC], exact)
    assert only(state.tick(1.0, {1}), StartWorker)
    state.worker_started(2)
    commands = state.handle(2, said(2, XEON), 1.0)
    assert bool(only(commands, BeginTerm)) == (exact == "warn")
    assert bool(only(commands, Fail)) == (exact == "require")
    assert "Xeon" in warnings(commands) or exact == "require"


# ---------------------------------------------------------------------------- real processes


def mixed() -> Engine:
    return FaultyEngine("process", 2, QUICK, ("on another machine",))


@pytest.mark.slow
def test_a_run_with_a_worker_on_another_machine_says_so_and_finishes(
    tmp_path: Path, data: Path, undisturbed: Path
) -> None:
    observer, run = Remembering(), tmp_path / "run"
    training.train(settings(data, run), observer, engine=mixed())
    (warning,) = (text for text in observer.warnings if "same bits" in text)
    with threads(1):
        assert str(this_machine()) in warning
    assert str(ANOTHER) in warning
    check_equal(run, undisturbed)


@pytest.mark.slow
def test_it_is_refused_before_it_trains_where_exactness_is_required(
    tmp_path: Path, data: Path
) -> None:
    run = tmp_path / "run"
    with pytest.raises(ConfigError, match="exact=require: not all machines of this run"):
        training.train(settings(data, run, "exact=require"), engine=mixed())
    assert not RunFolder(run).events()
    assert not RunFolder(run).checkpoints()
    check_nothing_is_left()


@pytest.mark.slow
def test_machines_that_are_alike_train_where_exactness_is_required(
    tmp_path: Path, data: Path
) -> None:
    run, observer = tmp_path / "run", Remembering()
    training.train(
        settings(data, run, "exact=require", "rounds=1"), observer, engine=Engine("process", 2)
    )
    assert observer.warnings == []
