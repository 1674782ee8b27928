"""What a Trainer's loops did, noted with its moment, so that the machine can follow when there is time for it.

What runs once or twice a batch, amid a training, costs several times what the same code costs in a loop. So where the
one who follows does not have to be told at once, the edges of a batch are only noted as they pass, and handled for many
batches together: between two of them, in the same order, and with the clock showing the moment of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from threading import RLock, get_ident
from typing import Final, Protocol

from lightning_timing.callbacks.edges import STRIDE, Edges
from lightning_timing.callbacks.routine import Routines
from lightning_timing.clocks import Clock
from lightning_timing.interrupts import InterruptGuard, undisturbed
from lightning_timing.parts import Part
from lightning_timing.recording import IterationLabel

MAX_WAIT_NS: Final = 1_000_000_000
"""The longest that the edges of a batch wait, if another batch comes by then."""
MAX_EDGES: Final = 10_000
"""More edges than this do not wait for more."""


class LateFollower(Protocol):
    """One who can be told of phases late, with a clock that shows when they were."""

    clock: Clock
    bookkeeping_ns: int

    def follow_late(self, catch_up: Callable[[], None], catch_up_if_stuck: Callable[[], bool]) -> None:
        """From now on either has it told of all so far, the second on another thread if this one is stuck."""

    def read_moments_by(self, read: Clock) -> None:
        """Has it read the moments of phases otherwise than before."""

    def patience(self) -> int:
        """How many iterations it can wait from now on before it is told of them; 0: nor for what begins one."""

    def cut(self, end_ns: int, undisturbed: AbstractContextManager[object]) -> bool:
        """An iteration ended at a moment, so what is measured beside the phases belongs to the next one from now on.

        Args:
            end_ns: The moment.
            undisturbed: Has Ctrl-C wait, for what must not be done by half.

        Returns:
            Whether it may be told of that later.
        """

    @property
    def is_in_iteration(self) -> bool:
        """Whether an iteration is open."""


class Trail:
    """The edges that were noted and not handled yet.

    Args:
        part: Takes failures to handle them.
        guard: Has Ctrl-C wait while one is handled at once.

    Attributes:
        edges: They, in order. Whoever is at an edge adds it; the list is always the same.
        follower: Who is told late; None: edges are not to be noted but handled at once.
        clock: Reads the moment of an edge.
    """

    def __init__(self, part: Part, guard: InterruptGuard) -> None:
        self.edges: Edges = []
        self.follower: LateFollower | None = None
        self.clock: Clock = _no_clock
        self._part = part
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
        self._whole: dict[int, int] = {}  # where a whole iteration begins in the list, and where it has ended
        self._handled = 0  # entries that are still in the list, but were handled on another thread
        self._handling = RLock()
        self._seen = 0, 0

    def lead(self, follower: LateFollower | None, routines: Routines | None = None) -> None:
        """Has a follower told late from now on, or nobody.

        Args:
            follower: The follower.
            routines: Handles whole iterations.
        """
        self.catch_up()
        self._routines = routines
        self.edges.clear()  # what was open when nobody was told late any more may have ended since
        self._whole, self._begun_at, self._handled = {}, None, 0
        if self.follower is not None:
            self.follower.follow_late(_nothing, bool)
        self.follower = follower
        if follower is not None:
            self.clock = follower.clock
            follower.follow_late(self.catch_up, self.catch_up_if_stuck)

    def turn(self, ends: Callable[[], object], begins: Callable[[], object]) -> None:
        """The loop goes on to the next batch; between the two is the time to catch up, if it is due.

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
            self._begun_at = None if self._routines is None else end
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
        """Notes an edge that can wait, or has it handled at once.

        It is where nobody is told late, and in the first batch of an epoch until its iteration is open: that begins
        between two turns, and what is measured beside the phases has to find it begun.

        Args:
            handle: Handles it.
            label: What to call that with, if anything.
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
        """Wraps what handles an edge that cannot wait: it is handled after all that were noted, as of its moment."""

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
        """Handles what was noted. Only the thread of the loop does."""
        self._iterations_left = 0
        follower = self.follower
        if follower is None or get_ident() != self._thread:
            return
        # An edge that is handled by half leaves an iteration that does not add up.
        with undisturbed(), self._handling:
            if not self._is_catching_up:
                whole, self._whole, self._begun_at = self._whole, {}, None
                self._handle(follower, whole)
                del self.edges[: self._handled]
                self._handled = 0
                self._is_hurried = not follower.is_in_iteration

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
            follower, whole, before = self.follower, dict(self._whole), self._handled
            if follower is not None and whole:
                self._handle(follower, whole, to=max(whole.values()))
            return self._handled > before

    def _handle(self, follower: LateFollower, whole: Mapping[int, int], to: int | None = None) -> None:
        """Handles the edges that were not handled yet.

        Args:
            follower: Who is told.
            whole: Where whole iterations begin in the list, and where they have ended.
            to: Only those before this place; None: also those that are noted meanwhile.
        """
        edges, moment = self.edges, self._moment
        self._is_catching_up = True
        try:
            follower.read_moments_by(self._read_moment)
            # The list may change meanwhile: what is handled may add to it, and empties it where the follower leaves.
            while self._handled < min(len(edges), len(edges) if to is None else to):
                at = self._handled
                if at in whole and self._routines is not None:
                    self._handled, handle_whole = self._routines.recognise(edges, at, whole)
                    handle_whole(moment)
                else:
                    self._handled = at + STRIDE
                    handle, moment[0], label = edges[at : at + STRIDE]
                    handle() if label is None else handle(label)
        except Exception as error:  # noqa: BLE001  # whatever it is: it must not end the loop that is watched
            self._handled = len(edges)
            self._part.fail(error)
        finally:
            follower.read_moments_by(self.clock)
            self._is_catching_up = False


def _nothing() -> None:
    """Nobody is behind."""


def _no_clock() -> int:
    raise RuntimeError("nobody is told late")
