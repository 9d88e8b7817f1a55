"""Executions of blocks that wait for each other: their order, and how they end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.synchronised_blocks.waiting_blocks import WaitingBlocks
from bitwise_core.execution.time_limit import TimeLimitExceeded, check_time, time_limit


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def test_blocks_take_turns_in_one_order() -> None:
    """Each of three blocks waits for the next one in each of two phases."""
    blocks, steps = WaitingBlocks(), list[tuple[int, int]]()

    def block(number: int) -> Callable[[], None]:
        def execute() -> None:
            assert blocks.running == number
            for phase in range(2):
                steps.append((number, phase))
                blocks.wait(partial(steps.__contains__, ((number + 1) % 3, phase)), 7)
                assert blocks.running == number

        return execute

    blocks.run([block(each) for each in range(3)])
    assert steps == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]


def test_a_block_that_waits_in_vain_ends_all() -> None:
    blocks, ended = WaitingBlocks(), []

    def waits() -> None:
        try:
            blocks.wait(lambda: False, 12)
        finally:
            ended.append(True)

    with pytest.raises(Unsupported, match="waits for a flag that no block sets") as error:
        blocks.run([waits, waits, lambda: None])
    assert error.value.line == 12
    assert ended == [True, True]


def test_the_error_of_a_block_is_raised_and_ends_the_others() -> None:
    blocks, ended = WaitingBlocks(), []

    def waits() -> None:
        try:
            blocks.wait(lambda: True, 1)
        finally:
            ended.append(True)

    def fails() -> None:
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        blocks.run([waits, fails, waits])
    assert ended == [True]  # the third block has not begun


def test_blocks_have_the_time_limit_of_their_caller() -> None:
    def waits_long() -> None:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            check_time(3)

    with time_limit(0.05), pytest.raises(TimeLimitExceeded):
        WaitingBlocks().run([waits_long])
