"""The fingerprint of a machine: the same in every process, another with other kernels."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from remuda.runs import machine
from remuda.runs.machine import processor, this_machine
from remuda.runs.portable import VARIABLES
from remuda.runs.records import Machine
from remuda.runs.threads import threads
from tests.runs.kernels import machines

x86_only = pytest.mark.skipif(
    platform.machine() != "x86_64" or "MKL" not in torch.__config__.show(),
    reason="the variables are those of x86-64 with MKL",
)
# Each rules out what some processors lack.
OTHERS: tuple[dict[str, str], ...] = (
    {"ATEN_CPU_CAPABILITY": "default"},
    {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    {"ONEDNN_MAX_CPU_ISA": "AVX"},
    {"MKL_CBWR": "COMPATIBLE"},
)
WITHOUT_AVX512 = ({"ATEN_CPU_CAPABILITY": "avx2"}, {"ONEDNN_MAX_CPU_ISA": "AVX2"})
ANYBODYS: tuple[dict[str, str], ...] = (  # what else a user may have exported
    {},
    {"DNNL_MAX_CPU_ISA": "SSE41"},
    {"ONEDNN_CPU_ISA_HINTS": "PREFER_YMM"},
    {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    {"MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    {"MKL_DEBUG_CPU_TYPE": "5"},
    {"MKL_DISABLE_FAST_MM": "1"},
)


def test_computing_in_between_does_not_change_the_fingerprint() -> None:
    with threads(1):
        before = this_machine()
        torch.randn(100, 100) @ torch.randn(100, 100)
        machine._machine.cache_clear()
        with torch.no_grad():
            assert this_machine() == before


def test_a_fingerprint_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    machine._machine.cache_clear()
    this_machine()
    assert torch.equal(torch.get_rng_state(), before)


@dataclass(frozen=True)
class Found:
    """What processes took themselves for."""

    own: list[Machine]
    on_two_threads: list[Machine]
    others: list[Machine]
    without_avx512: list[Machine]
    portable: list[Machine]


@pytest.fixture(scope="module")
def found() -> Found:
    parts: list[list[dict[str, str]]] = [
        [{}, {}],
        [{"threads": "2"}, {"threads": "2"}],
        [*OTHERS],
        [*WITHOUT_AVX512],
        [{**kind, **VARIABLES} for kind in (*ANYBODYS, *OTHERS)],
    ]
    all = iter(machines([kind for part in parts for kind in part]))
    return Found(*([next(all) for _ in part] for part in parts))


@pytest.mark.slow
def test_every_process_has_the_same_fingerprint_with_equal_threads(found: Found) -> None:
    with threads(1):
        assert found.own == [this_machine()] * 2
    assert found.on_two_threads[0] == found.on_two_threads[1]


@pytest.mark.slow
@x86_only
def test_other_kernels_have_another_fingerprint(found: Found) -> None:
    fingerprints = {one.fingerprint for one in (found.own[0], *found.others)}
    assert len(fingerprints) == 1 + len(OTHERS)
    assert found.others[0].capability == "DEFAULT"


@pytest.mark.slow
@x86_only
def test_avx2_has_another_fingerprint_than_avx512_in_each_library(found: Found) -> None:
    if found.own[0].capability != "AVX512":
        pytest.skip("this processor has no AVX512")
    fingerprints = {one.fingerprint for one in (found.own[0], *found.without_avx512)}
    assert len(fingerprints) == 1 + len(WITHOUT_AVX512)


@pytest.mark.slow
@x86_only
def test_a_portable_process_computes_the_same_whatever_else_libraries_are_told(
    found: Found,
) -> None:
    assert len({one.fingerprint for one in found.portable}) == 1


CPUINFO = """processor\t: 0
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC

processor\t: 1
cpu family\t: 6
model name\t: other
"""


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (CPUINFO, "AMD EPYC (family 25, model 17)"),
        ("model name\t: Ärm \x1b[31m\n", "?rm ?[31m"),
        (f"model name\t: {'x' * 500}\n", "x" * 120),
    ],
)
def test_the_processor_is_named_as_the_system_names_it(
    content: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(content)
    monkeypatch.setattr(machine, "_CPUINFO", path)
    assert processor() == name


def test_where_the_system_names_no_processor_there_is_still_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_CPUINFO", tmp_path / "none")
    assert processor()


@pytest.mark.parametrize("name", ["", "two\nlines", "\x1b[31mred", "x" * 121])
def test_what_would_disturb_a_terminal_is_no_processor(name: str) -> None:
    with pytest.raises(ValidationError):
        Machine(processor=name, capability="AVX2", fingerprint="0" * 16)
