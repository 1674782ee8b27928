"""Notes the edges of a Trainer's loops with their times, so that the machine can handle them later, many at once.

Code that runs once or twice a batch, in the middle of a training, costs several times what it costs in a loop. So where
the follower need not be notified at once, the edges of a batch are only noted as they pass. They are handled for many
batches together: between two batches, in the same order, and with a clock that shows the time of each edge.
`docs/architecture.md` follows one batch through all of this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from threading import RLock, get_ident
from typing import Final

from lightning_timing.callbacks.edges import STRIDE, Edges
from lightning_timing.callbacks.routine import Routines
from lightning_timing.clocks import Clock
from lightning_timing.closed_iterations import MAX_WAIT_NS
from lightning_timing.failsafe import Failsafe
from lightning_timing.interrupts import InterruptGuard, undisturbed
from lightning_timing.late_recorder import LateRecorder
from lightning_timing.measured_iterations import IterationLabel
from lightning_timing.no_op import nothing

MAX_EDGES: Final = 10_000
"""When this many edges are noted, all of them are handled."""


class Trail:
    """Keeps the edges that were noted and not handled yet.

    Args:
        failsafe: Takes failures to handle them.
        guard: Makes Ctrl-C wait while an edge is handled at once.

    Attributes:
        edges: The noted edges, in order. Code at an edge appends to this list, which is always the same object.
        follower: The follower that is notified late; None: edges are not noted but handled at once.
        clock: Reads the moment of an edge.
    """

    def __init__(self, failsafe: Failsafe, guard: InterruptGuard) -> None:
        self.edges: Edges = []
        self.follower: LateRecorder | None = None
        self.clock: Clock = _no_clock
        self._failsafe = failsafe
        self._guard = guard
        self._thread = get_ident()
        self._moment = [0]
        self._read_moment: Clock = partial(self._moment.__getitem__, 0)  # all in C, as it is called at each edge
        self._is_catching_up = False
        self._iterations_left = 0
        self._caught_up_at = 0
        self._is_hurried = False
        self._routines: Routines | None = None
        self._begun_at: int | None = None
        self._whole: dict[int, int] = {}  # where each whole iteration begins in the list, and where it has ended
        self._handled = 0  # entries that are still in the list, but were handled on another thread
        self._handling = RLock()
        self._seen = 0, 0

    def set_late_follower(self, routines: Routines | None) -> None:
        """Sets who is notified late from now on.

        Args:
            routines: Handles whole iterations, for the recorder that is notified late; None: nobody is.
        """
        self.catch_up()
        follower = None if routines is None else routines.recorder
        self.edges.clear()  # what was open when the last follower was removed may have ended since
        self._whole, self._begun_at, self._handled = {}, None, 0
        if self.follower is not None:
            self.follower.follow_late(nothing, bool)
        self._routines, self.follower = routines, follower
        if follower is not None:
            self.clock = follower.clock
            follower.follow_late(self.catch_up, self.catch_up_if_stuck)

    def turn(self, ends: Callable[[], object], begins: Callable[[], object]) -> None:
        """Notes or handles the turn to the next batch, and catches up in between if that is due.

        Args:
            ends: Handles the end of the iteration.
            begins: Handles the beginning of the next one.
        """
        now = self.clock()
        edges = self.edges
        edges += ends, now, None
        end = len(edges)
        may_wait = self.follower is not None and not self._is_hurried and self.follower.cut(now, self._guard)
        if may_wait and self._begun_at is not None:
            self._whole[self._begun_at] = end
        self._iterations_left -= 1
        late = now - self._caught_up_at >= MAX_WAIT_NS or end >= STRIDE * MAX_EDGES
        if may_wait and self._iterations_left >= 0 and not late:
            self._begun_at = end
            edges += begins, now, None
            return
        with undisturbed():
            self.catch_up()
            self._caught_up_at = now
            follower = self.follower
            self._iterations_left = 0 if follower is None else follower.patience()
            begins()
        self._is_hurried = follower is not None and not follower.is_in_iteration

    def note(self, handle: Callable[..., object], label: IterationLabel | None = None) -> None:
        """Notes an edge that can wait, or handles it at once.

        It is handled at once where no follower is notified late, and in the first batch of an epoch until its iteration
        is open: that iteration begins between two turns, and what user code measures has to find it open.

        Args:
            handle: Handles the edge.
            label: The argument of `handle`, if any.
        """
        if self.follower is None:
            with self._guard:
                handle() if label is None else handle(label)
            return
        edges = self.edges
        edges += handle, self.clock(), label
        if self._is_hurried or len(edges) >= STRIDE * MAX_EDGES:
            self.catch_up()

    def at_once(self, handle: Callable[[], object]) -> Callable[[], None]:
        """Wraps the handler of an edge that cannot wait: it runs after all noted edges, with its own edge's time."""

        def handle_now() -> None:
            if self.follower is None:
                with self._guard:
                    handle()
            else:
                now = self.clock()
                self.edges += handle, now, None
                follower = self.follower
                self.catch_up()
                follower.bookkeeping_ns += self.clock() - now

        return handle_now

    def catch_up(self) -> None:
        """Handles all noted edges, but only on the loop's thread."""
        self._iterations_left = 0
        routines = self._routines
        if routines is None or get_ident() != self._thread:
            return
        # An edge that is handled by half leaves an iteration that does not add up.
        with undisturbed(), self._handling:
            if not self._is_catching_up:
                whole, self._whole, self._begun_at = self._whole, {}, None
                self._handle(routines, whole)
                del self.edges[: self._handled]
                self._handled = 0
                self._is_hurried = not routines.recorder.is_in_iteration

    def catch_up_if_stuck(self) -> bool:
        """Handles the iterations that have ended, if nothing was noted since the last call.

        For another thread to call now and then, so that they are known even if the thread of the loop hangs for good.

        Returns:
            Whether any were handled.
        """
        *_, moment, _ = self.edges[-STRIDE:] or (0, 0)
        last = len(self.edges), moment
        is_stuck, self._seen = bool(self.edges) and last == self._seen, last
        if not is_stuck:
            return False
        with self._handling:  # only now it is sure that the thread of the loop is not quicker
            routines, whole, before = self._routines, dict(self._whole), self._handled
            if routines is not None and whole:
                self._handle(routines, whole, to=max(whole.values()))
            return self._handled > before

    def _handle(self, routines: Routines, whole: Mapping[int, int], to: int | None = None) -> None:
        """Handles the edges that were not handled yet.

        Args:
            routines: Handles whole iterations, for the recorder that is notified late.
            whole: For each whole iteration in the list, the index at which it begins and the one at which it has ended.
            to: Handle only edges before this index; None: also those that are noted meanwhile.
        """
        edges, moment, recorder = self.edges, self._moment, routines.recorder
        self._is_catching_up = True
        try:
            recorder.read_moments_by(self._read_moment)
            # The list may change meanwhile: what is handled may add to it, and empties it where the follower leaves.
            while self._handled < min(len(edges), len(edges) if to is None else to):
                at = self._handled
                if at in whole and (recognised := routines.recognise(edges, at, whole)) is not None:
                    self._handled, handle_whole = recognised
                    handle_whole(moment)
                else:
                    self._handled = at + STRIDE
                    handle, moment[0], label = edges[at : at + STRIDE]
                    handle() if label is None else handle(label)
        except Exception as error:  # noqa: BLE001  # whatever it is: it must not end the loop that is watched
            self._handled = len(edges)
            self._failsafe.fail(error)
        finally:
            recorder.read_moments_by(self.clock)
            self._is_catching_up = False


def _no_clock() -> int:
    raise RuntimeError("nobody is told late")
