"""The time limit of a reading: in loops, in threads, in the assembler; and that it leaves nothing behind."""

from __future__ import annotations

import contextvars
import gc
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from parametric_kernels import kernel
from toy_texts import launch, row_sum, write
from typer.testing import CliRunner

import bitwise_core as bitwise
from bitwise_core.checker.analysis import Session, analyse
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.checker.sources import Options, Source
from bitwise_core.cli import app
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.time_limit import TimeLimitExceeded, check_time, remaining_seconds, time_limit
from bitwise_core.plugins import registry

pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")

LOOP = """mov.u32 %r8, 0;
AGAIN:
add.u32 %r8, %r8, 1;
setp.lt.u32 %p2, %r8, 2000000;
@%p2 bra AGAIN;
.loc 1 6 0
"""
SLOW = row_sum().replace(".loc 1 6 0\n", LOOP)
"""A loop of some minutes."""

BODY = "".join(f"fma.rn.f32 %f1, %f1, %f{2 + number % 2}, %f2;\n" for number in range(1500))
SYMBOLIC = kernel(f"""\t.reg .f32 %f<9>;
mul.wide.u32 %rd3, %r4, 4;
add.s64 %rd4, %rd1, %rd3;
add.s64 %rd5, %rd2, %rd3;
ld.global.f32 %f2, [%rd4];
mov.f32 %f3, %f2;
mov.f32 %f1, 0f00000000;
mov.u32 %r8, 0;
AGAIN:
{BODY}add.u32 %r8, %r8, 1;
setp.lt.u32 %p2, %r8, %r1;
@%p2 bra AGAIN;
st.global.f32 [%rd5], %f1;
""")
"""A loop that the launch-parametric analysis summarises, of many instructions."""

PLAIN = row_sum()
CONTRACTIBLE = row_sum(combine="add.f32").replace("ld.global.f32 %f2", "mul.f32 %f1, %f1, %f1;\nld.global.f32 %f2")
IN_PLACE = (
    row_sum()
    .replace("ld.param.u64 %rd2, [y]", "ld.param.u64 %rd2, [x]")
    .replace("mul.wide.u32 %rd5, %r5, 4", "mul.wide.u32 %rd5, %r5, 256")
)
"""Every row is read, and its sum is stored at its start."""

ARGUMENTS = {"X": 1, "Y": 2}

LIMITS = (0.5, 2.0, 8.0)
"""Limits in seconds that a test tries in turn: on a busy machine the least may pass before a short kernel is read."""


def source(text: str, *, launched: bool = True) -> Source:
    return Source("slow.ptx", text, Launch.model_validate(launch("slow.ptx")) if launched else None)


def read(text: str, seconds: float | None, **options: Any) -> AnalysisResult:
    launched = not options.get("every_launch")
    options = {"audit_contraction": False, "time_limit": seconds, **options}
    return analyse(source(text, launched=launched), registry.default().arch("sm_90"), ARGUMENTS, Options(**options))


def test_a_check_raises_after_the_time() -> None:
    check_time()
    assert remaining_seconds() is None
    with time_limit(60.0):
        check_time(3)
        remaining = remaining_seconds()
        assert remaining is not None
        assert 0 < remaining <= 60
        with time_limit(0.001):
            time.sleep(0.01)
            with pytest.raises(TimeLimitExceeded) as caught:
                check_time(3)
        check_time(3)
    assert caught.value.line == 3
    assert str(caught.value) == (
        "the time limit of 0.001 s for one kernel passed at line 3; the option --time-limit, or the argument "
        "time_limit, sets another one in seconds, and 0 sets none"
    )
    check_time()


def test_the_outer_limit_holds_inside() -> None:
    with time_limit(0.001), time_limit(60.0), time_limit(None):
        time.sleep(0.01)
        with pytest.raises(TimeLimitExceeded, match=r"0\.001 s"):
            check_time()


def test_other_threads_have_the_limit_in_a_copy_of_the_context_only() -> None:
    with time_limit(0.001), ThreadPoolExecutor(1) as pool:
        time.sleep(0.01)
        pool.submit(check_time).result()
        with pytest.raises(TimeLimitExceeded):
            pool.submit(contextvars.copy_context().run, check_time).result()


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_limit_is_above_zero(seconds: float) -> None:
    with pytest.raises(ValueError, match="the time limit must be above 0 s"):
        Options(time_limit=seconds)


def test_a_long_loop_is_unknown_with_its_line() -> None:
    assert read(SLOW.replace("2000000", "20"), None).unknown is None
    lines = [SLOW.split("\n").index(each) + 1 for each in LOOP.split("\n")[2:5]]
    for limit in LIMITS:
        start = time.monotonic()
        found = read(SLOW, limit)
        assert time.monotonic() - start < limit + 20
        assert (found.signature, found.interrupted, found.malformed, found.failed) == (None, True, False, False)
        reasons = [
            f"the time limit of {limit:g} s for one kernel passed at line {line}; the option --time-limit, or the "
            "argument time_limit, sets another one in seconds, and 0 sets none"
            for line in lines
        ]
        if found.unknown in reasons:
            break
    assert found.unknown in reasons


def test_a_loop_summary_is_unknown() -> None:
    found = read(SYMBOLIC, None, every_launch=True)
    for _ in range(8):
        if found.unknown is not None:
            break
        limit = found.seconds / 4  # a reading that waited for other processes took more time than the next one
        found = read(SYMBOLIC, limit, every_launch=True)
    assert found.unknown is not None
    assert found.unknown.startswith(f"the time limit of {limit:g} s")
    assert found.interrupted


@pytest.mark.parametrize(
    ("module", "text", "every_launch"),
    [
        ("bitwise_core.execution.executor", PLAIN, False),
        ("bitwise_core.checker.parametric.loops.induction_variables", SYMBOLIC, True),
        ("bitwise_core.checker.parametric.global_conflicts", SYMBOLIC, True),
        ("bitwise_core.execution.races.late_races", IN_PLACE, False),
        ("bitwise_nvidia_ptx.contraction.candidates", CONTRACTIBLE, False),
    ],
)
def test_every_long_loop_checks_the_time(
    module: str, text: str, every_launch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def passed(line: int | None = None) -> None:
        raise TimeLimitExceeded(1.0, line)

    assert not read(text, None, every_launch=every_launch, audit_contraction=True).interrupted
    monkeypatch.setattr(f"{module}.check_time", passed)
    assert read(text, None, every_launch=every_launch, audit_contraction=True).interrupted


def test_the_limit_works_in_threads() -> None:
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(read, [SLOW, row_sum(), SLOW], [1.0, 60.0, 1.0]))
    assert [each.signature is None for each in found] == [True, False, True]
    assert found[0].interrupted
    assert found[2].interrupted


def test_nothing_is_left_behind() -> None:
    expected = read(row_sum(), None)
    limit = 0.5 + 10 * expected.seconds
    arch, options = registry.default().arch("sm_90"), Options(audit_contraction=False, time_limit=limit)
    session, running, collects = Session(ARGUMENTS, options), threading.active_count(), gc.isenabled()
    assert session.analyse(source(SLOW), arch).interrupted
    assert session.analyse(source(row_sum()), arch).signature == expected.signature
    assert (threading.active_count(), gc.isenabled(), remaining_seconds()) == (running, collects, None)
    short = SLOW.replace("2000000", "20")
    assert read(short, None).signature == expected.signature


def test_a_comparison_has_the_limit_for_each_kernel() -> None:
    arch, options = registry.default().arch("sm_90"), Options(audit_contraction=False, time_limit=0.2)
    found = compare(source(row_sum()), source(SLOW), arch, options)
    assert found.verdict.outcome is bitwise.Outcome.UNKNOWN
    assert "the time limit of 0.2 s" in found.verdict.reason
    entry = launch("slow.ptx")
    outcome = bitwise.compare(SLOW, row_sum(), entry, audit_contraction=False, time_limit=0.2, search_seconds=0)
    assert outcome.outcome is bitwise.Outcome.UNKNOWN


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_the_public_functions_reject_a_limit_that_is_none(seconds: float) -> None:
    for call in (bitwise.compare, bitwise.partition):
        arguments: list[Any] = [row_sum(), row_sum()] if call is bitwise.compare else [[row_sum()]]
        with pytest.raises(bitwise.BitwiseError, match=r"time_limit: .* is not a number of seconds"):
            call(*arguments, time_limit=seconds)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_option_of_the_commands(tmp_path: Path, workers: str) -> None:
    texts: dict[str, str | bytes] = {"a.ptx": row_sum(), "b.ptx": SLOW, "c.ptx": row_sum(swapped=True)}
    folder = write(tmp_path, texts, [launch(name) for name in texts])
    for limit in LIMITS:
        arguments = ["partition", str(folder), "--json", "--workers", workers, "--time-limit", f"{limit:g}"]
        done = CliRunner().invoke(app, arguments)
        assert (done.exit_code, done.stderr) == (0, "")
        found = json.loads(done.stdout)
        assert found["unknown"]["b.ptx"].startswith(f"the time limit of {limit:g} s for one kernel passed")
        if set(found["unknown"]) == {"b.ptx"}:
            break
    assert found["classes"] == [["a.ptx", "c.ptx"], ["b.ptx"]]
    assert " passed at line " in found["unknown"]["b.ptx"]
    pair = [str(folder / "a.ptx"), str(folder / "b.ptx")]
    done = CliRunner().invoke(app, ["diff", *pair, "--time-limit", "0.5", "--no-search"])
    assert done.exit_code == 3
    assert "the time limit of 0.5 s" in done.stdout


def test_the_default_is_a_minute() -> None:
    for command in ("partition", "diff"):
        assert "--time-limit" in CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).stdout
    assert "60" in CliRunner().invoke(app, ["partition", "--help"], env={"COLUMNS": "200"}).stdout


def slow_assembler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An assembler that takes a minute, and leaves its process number in a file."""
    tool = folder / "ptxas"
    tool.write_text(
        f"#!/bin/sh\n[ $1 = --version ] && echo 'Cuda compilation tools, release 12.8, V12.8.93' && exit\n"
        f"echo $$ >> {folder}/started\nexec sleep 60\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("BITWISE_PTXAS", str(tool))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    return folder / "started"


def test_the_limit_ends_the_assembler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = slow_assembler(tmp_path, monkeypatch)
    for limit in LIMITS:
        start = time.monotonic()
        found = read(CONTRACTIBLE, limit, audit_contraction=True)
        assert time.monotonic() - start < limit + 20
        assert found.interrupted
        assert found.unknown is not None
        assert found.unknown.startswith(f"the time limit of {limit:g} s for one kernel passed")
        if started.exists():
            break
    numbers = started.read_text().split()
    assert numbers
    for number in numbers:
        with pytest.raises(ProcessLookupError):
            os.kill(int(number), 0)


def test_an_assembler_that_is_killed_is_no_reason_to_keep_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_assembler(tmp_path, monkeypatch)
    tool = tmp_path / "ptxas"
    tool.write_text(tool.read_text().replace("exec sleep 60", "kill -9 $$"))
    found = read(CONTRACTIBLE, None, audit_contraction=True)
    assert found.interrupted
    assert found.unknown is not None
    assert "ended by the signal 9" in found.unknown
