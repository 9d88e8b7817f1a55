"""Executions of blocks of which one runs at a time: a block that waits for another one stops, and goes on later."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context

from bitwise_core.execution.domains.domain import Unsupported


class _Ended(BaseException):
    """Unwinds an execution that is not to go on."""


class _Execution:
    """The execution of a block in a thread of its own, which has its turn only between `go_on` and its next stop."""

    def __init__(self, execute: Callable[[], None]) -> None:
        self.may_go_on: Callable[[], bool] | None = None
        """Whether what the block waits for has come; None: it has not begun or is not waiting."""
        self.line: int | None = None
        """The line of the access that waits."""
        self.is_done = False
        self._error: BaseException | None = None
        self._is_abandoned = False
        self._turn, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        # The thread has the time limit of this context.
        self._thread = threading.Thread(target=copy_context().run, args=(self._run, execute), daemon=True)

    def _run(self, execute: Callable[[], None]) -> None:
        try:
            self._turn.acquire()
            if not self._is_abandoned:
                execute()
        except _Ended:
            pass
        except BaseException as error:  # raised again in the thread that gave the turn
            self._error = error
        finally:
            self.is_done = True
            self._stopped.release()

    def go_on(self) -> None:
        """Run the block until it waits or ends.  Raises what its execution raises."""
        if not self._thread.is_alive():
            self._thread.start()
        self.may_go_on = None
        self._turn.release()
        self._stopped.acquire()
        if self._error is not None:
            raise self._error

    def wait(self, may_go_on: Callable[[], bool], line: int) -> None:
        """Stop in the thread of the execution, until its next turn."""
        if self._is_abandoned:
            raise _Ended
        self.may_go_on, self.line = may_go_on, line
        self._stopped.release()
        self._turn.acquire()
        if self._is_abandoned:
            raise _Ended

    def abandon(self) -> None:
        """End the execution where it waits; one that runs, since its turn was interrupted, ends at its next wait."""
        self._is_abandoned = True
        if self._thread.is_alive() and self.may_go_on is not None:
            self._turn.release()
            self._thread.join()


class WaitingBlocks:
    """Runs blocks in their order; one that waits lets the others run, until what it waits for has come.

    The order is the same in every run: all blocks that may go on have their turn, one after another, again and again.
    """

    def __init__(self) -> None:
        self._running: tuple[int, _Execution] | None = None

    @property
    def running(self) -> int:
        """The place of the block that runs."""
        assert self._running is not None
        return self._running[0]

    def run(self, blocks: Sequence[Callable[[], None]]) -> None:
        """Run blocks to their ends.  Raises Unsupported if one waits for what no block does."""
        executions = [_Execution(each) for each in blocks]
        left = list(enumerate(executions))
        try:
            while left:
                ready = [each for each in left if each[1].may_go_on is None or each[1].may_go_on()]
                if not ready:
                    raise Unsupported("a block waits for a flag that no block sets", left[0][1].line)
                for each in ready:
                    self._running = each
                    each[1].go_on()
                left = [each for each in left if not each[1].is_done]
        finally:
            self._running = None
            for execution in executions:
                execution.abandon()

    def wait(self, may_go_on: Callable[[], bool], line: int) -> None:
        """Let other blocks run until `may_go_on`; called by the block that runs, at the access of `line`."""
        assert self._running is not None
        self._running[1].wait(may_go_on, line)
