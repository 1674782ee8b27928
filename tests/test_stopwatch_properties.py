"""Any order of calls, on any threads, with warm-up anywhere, against a simple model: the totals are the model's."""

from __future__ import annotations

import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from known_cost import FakeClock

from lightning_timing import Stopwatch
from lightning_timing.measured_iterations import IterationLabel
from lightning_timing.phase_recorder import PhaseRecorder
from lightning_timing.phases import CALLBACKS, ITERATION, OTHER, PHASES
from lightning_timing.recorder_settings import RecorderSettings
from lightning_timing.stopwatch import STOPWATCH

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightning_timing.figures import MeasurementSummary, StageSummary

NAMES = ("a", "b", "c")
THREADS = 3
ANY_NAME = st.sampled_from(NAMES)
ANY_THREAD = st.integers(0, THREADS - 1)
SHORT_NS = st.integers(0, 5)
WARMUPS = st.sampled_from((0, 0, 1, 2))


@dataclass
class ModelOpening:
    """An open interval."""

    begin: int
    spoilt: bool = False


@dataclass
class ModelMeasurement:
    """What is known of one name in one stage."""

    openings: dict[int, ModelOpening] = field(default_factory=dict)
    current: list[int] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)
    parent: str | None = None
    has_parent: bool = False


@dataclass
class ModelStage:
    """What is known of one stage: warm-up, iterations, and the user's measurements in the order of their first use."""

    warmup_left: int
    warmup_ns: list[int] = field(default_factory=list)
    iterations_ns: list[int] = field(default_factory=list)
    measurements: dict[str, ModelMeasurement] = field(default_factory=dict)

    def start(self, thread: int, name: str, now: int) -> None:
        openings = self.measurements.setdefault(name, ModelMeasurement()).openings
        if thread in openings:
            openings[thread].spoilt = True
        else:
            openings[thread] = ModelOpening(now)

    def end(self, thread: int, name: str, now: int) -> None:
        measurement = self.measurements.get(name)
        opening = None if measurement is None else measurement.openings.pop(thread, None)
        if measurement is None or opening is None or opening.spoilt:
            return
        if not measurement.has_parent:
            measurement.has_parent = True
            measurement.parent = self.enclosing(thread, measurement, opening.begin)
        measurement.current.append(now - opening.begin)

    def enclosing(self, thread: int, inner: ModelMeasurement, begin: int) -> str | None:
        """The name of the innermost that was open round an interval on its thread."""
        around = [
            (opening.begin, -order, name)
            for order, (name, other) in enumerate(self.measurements.items())
            if other is not inner
            and (opening := other.openings.get(thread)) is not None
            and not opening.spoilt
            and opening.begin <= begin
        ]
        return max(around)[2] if around else None

    def finish(self, thread: int, iteration_ns: int) -> None:
        """An iteration ends on a thread: what that has open is spoilt, and what warm-up began does not count."""
        ends_warmup = self.warmup_left == 1
        for measurement in self.measurements.values():
            for opener, opening in measurement.openings.items():
                opening.spoilt = opening.spoilt or opener == thread or ends_warmup
        if self.warmup_left:
            self.warmup_left -= 1
            self.warmup_ns.append(iteration_ns)
            self.drop()
            return
        self.iterations_ns.append(iteration_ns)
        for measurement in self.measurements.values():
            measurement.counted += measurement.current
        self.drop()

    def drop(self) -> None:
        for measurement in self.measurements.values():
            measurement.current = []


def check_counted(
    found: MeasurementSummary, counted: list[int], iterations_ns: list[int], outside: list[int] | None = None
) -> None:
    """A measurement's figures are those of its samples, of which `outside` have no share in the iterations."""
    assert found.count == len(counted)
    if not counted:
        assert (found.total_s, found.mean_s, found.min_s, found.max_s, found.share) == (None,) * 5
        return
    total = sum(counted)
    assert found.total_s == total / 1e9
    assert found.mean_s == total / len(counted) / 1e9
    assert (found.min_s, found.max_s) == (min(counted) / 1e9, max(counted) / 1e9)
    inside = sum(counted) - sum(outside or ())
    has_share = iterations_ns and len(counted) > len(outside or ())
    assert found.per_iteration_s == (inside / len(iterations_ns) / 1e9 if has_share else None)
    assert found.share == (inside / sum(iterations_ns) if has_share and sum(iterations_ns) else None)


class OnThreads:
    """Real threads, each of which does one thing at a time, when it is told to."""

    def __init__(self) -> None:
        self._threads = [ThreadPoolExecutor(1) for _ in range(THREADS)]

    def on(self, thread: int, call: Callable[..., object], *arguments: Any) -> None:
        """Calls something on a thread, and waits for it."""

        def quietly() -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call(*arguments)

        self._threads[thread].submit(quietly).result(timeout=60)

    def close(self) -> None:
        for thread in self._threads:
            thread.shutdown()


class StopwatchMachine(RuleBasedStateMachine):
    """The Stopwatch in a plain loop, on several threads."""

    def __init__(self) -> None:
        super().__init__()
        self.threads = OnThreads()
        self.clock = FakeClock()
        self.stopwatch = Stopwatch()
        self.model: ModelStage | None = None
        self.begin: int | None = None
        self.one_time: dict[str, tuple[int, int | None]] = {}

    @initialize(warmup=WARMUPS)
    def start_enabled(self, warmup: int) -> None:
        self.enable(warmup)

    @precondition(lambda self: self.model is None)
    @rule(warmup=WARMUPS)
    def enable(self, warmup: int) -> None:
        self.stopwatch.enable(warmup, on_misuse="warn", clock=self.clock)
        self.model, self.begin, self.one_time = ModelStage(warmup), None, {}

    @rule(thread=ANY_THREAD, name=ANY_NAME, ns=SHORT_NS)
    def start_meas(self, thread: int, name: str, ns: int) -> None:
        self.clock.advance(ns)
        self.threads.on(thread, self.stopwatch.start_meas, name)
        if self.model is not None:
            if name not in self.model.measurements and self.begin is None:
                self.begin = self.clock.now_ns
            self.model.start(thread, name, self.clock.now_ns)

    @rule(thread=ANY_THREAD, name=ANY_NAME, ns=SHORT_NS)
    def end_meas(self, thread: int, name: str, ns: int) -> None:
        self.clock.advance(ns)
        self.threads.on(thread, self.stopwatch.end_meas, name)
        if self.model is not None:
            self.model.end(thread, name, self.clock.now_ns)

    @rule(thread=ANY_THREAD, names=st.lists(ANY_NAME, min_size=1, max_size=4), ns=SHORT_NS)
    def measure_one_in_another(self, thread: int, names: list[str], ns: int) -> None:
        for name in names:
            self.start_meas(thread, name, ns)
        for name in reversed(names):
            self.end_meas(thread, name, ns)

    @rule(thread=ANY_THREAD, ns=SHORT_NS)
    def finish_iter(self, thread: int, ns: int) -> None:
        self.clock.advance(ns)
        self.threads.on(thread, self.stopwatch.finish_iter)
        if self.model is not None:
            now = self.clock.now_ns
            self.model.finish(thread, now - (now if self.begin is None else self.begin))
            self.begin = now

    @rule(thread=ANY_THREAD, name=ANY_NAME)
    def start_one_time(self, thread: int, name: str) -> None:
        self.threads.on(thread, self.stopwatch.start_one_time_measurement, name)
        if self.model is not None:
            self.one_time.setdefault(name, (self.clock.now_ns, None))

    @rule(thread=ANY_THREAD, name=ANY_NAME)
    def end_one_time(self, thread: int, name: str) -> None:
        self.threads.on(thread, self.stopwatch.end_one_time_measurement, name)
        begin, end = self.one_time.get(name, (None, None))
        if self.model is not None and begin is not None and end is None:
            self.one_time[name] = (begin, self.clock.now_ns)

    @precondition(lambda self: self.model is not None and len(self.model.iterations_ns) > 2)
    @rule(forget=st.booleans())
    def switch_off(self, forget: bool) -> None:
        if forget:
            self.stopwatch.reset()
            assert self.stopwatch.summary().stages == {}
        else:
            self.stopwatch.disable()
        self.model = None

    @invariant()
    def the_figures_are_the_models(self) -> None:
        if self.model is None:
            assert not self.stopwatch.is_enabled
            return
        figures = self.stopwatch.summary()
        assert figures.one_time == {
            name: None if end is None else (end - begin) / 1e9 for name, (begin, end) in self.one_time.items()
        }
        assert self.stopwatch.get_num_nonwarmup_iters_measured() == len(self.model.iterations_ns)
        stage = figures.stages.get("train")
        if stage is None:
            assert not self.model.measurements
            assert not self.model.warmup_ns
            return
        check_stage(stage, self.model)

    def teardown(self) -> None:
        if self.model is not None and STOPWATCH._recorder is not None:
            check_open(STOPWATCH._recorder, self.model)
        self.threads.close()
        self.stopwatch.reset()


def check_stage(stage: StageSummary, model: ModelStage) -> None:
    """The measurements and the iterations of a stage are those of the model."""
    check_iterations(stage, model)
    assert list(stage.measurements) == list(model.measurements)
    for name, measurement in model.measurements.items():
        check_counted(stage.measurements[name], measurement.counted, model.iterations_ns)
        assert stage.measurements[name].parent == measurement.parent


def check_iterations(stage: StageSummary, model: ModelStage) -> None:
    """So many iterations count, and so many do not, as in the model; and it is known how long the latter took."""
    assert (stage.iterations, stage.warmup_iterations) == (len(model.iterations_ns), len(model.warmup_ns))
    assert stage.warmup_s == sum(model.warmup_ns) / 1e9


def check_open(recorder: PhaseRecorder, model: ModelStage) -> None:
    """What is open, on which thread, is what the model has open: nothing that was ended was left behind."""
    for name, measurement in model.measurements.items():
        found = recorder.stage.user_measurements[name]
        openings = len(found.openings) + (found.thread > 0)
        assert openings == len(measurement.openings)


TestStopwatch = StopwatchMachine.TestCase
TestStopwatch.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


@dataclass
class ModelFrame:
    """An open phase; `None` is the iteration itself."""

    name: str | None
    begin: int
    own: int = 0


class ModelLedger:
    """Where the time of an iteration, or of what lies between two, goes: at each boundary, to the innermost phase."""

    def __init__(self, now: int) -> None:
        self.begin = self.boundary = now
        self.frames = [ModelFrame(None, now)]
        self.paused: dict[str, int] = {}
        self.samples: list[tuple[str, int]] = []

    def enter(self, name: str, now: int, since_last: bool) -> None:
        if not since_last:
            self.frames[-1].own += now - self.boundary
            self.boundary = now
        self.frames.append(ModelFrame(name, self.boundary))

    def leave(self, now: int, paused: bool) -> None:
        frame = self.frames.pop()
        assert frame.name is not None
        own = frame.own + now - self.boundary + self.paused.pop(frame.name, 0)
        self.boundary = now
        if paused:
            self.paused[frame.name] = own
            return
        self.samples.append((frame.name, own))
        whole, _, part = frame.name.partition("/")
        if part:
            self.samples.append((whole, own))

    def close(self, now: int, at_last: bool) -> int:
        """Returns how long the whole of it took."""
        (root,) = self.frames
        end = self.boundary if at_last else now
        self.samples += [(OTHER, root.own + end - self.boundary), (ITERATION, end - self.begin)]
        return end - self.begin


@dataclass
class ModelLoopStage(ModelStage):
    """A stage of a loop whose phases are measured too."""

    phases: dict[str, list[int]] = field(default_factory=dict)
    between: dict[str, list[int]] = field(default_factory=dict)
    outside: dict[str, list[int]] = field(default_factory=dict)

    def take_outside(self) -> None:
        """What the user measured since the last iteration lies outside of them; in warm-up it does not count."""
        for name, measurement in self.measurements.items():
            if measurement.current and not self.warmup_left:
                self.outside.setdefault(name, []).extend(measurement.current)
                measurement.counted += measurement.current
        self.drop()


def add(samples: dict[str, list[int]], name: str, ns: int) -> None:
    samples.setdefault(name, []).append(ns)


LOOP_PHASES = ("forward", "backward", "callbacks/X", "callbacks/Y")
LOOP_STAGES = {"train": 1, "validate": 1}
"""Warm-up iterations by stage."""
IN_AN_ITERATION = st.tuples(
    st.sampled_from(("pass", "enter", "leave", "start", "end")), st.sampled_from(LOOP_PHASES), ANY_NAME, ANY_THREAD
)


class RecorderMachine(RuleBasedStateMachine):
    """A recorder that callbacks drive on the first thread, while the user measures on all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.threads = OnThreads()
        self.clock = FakeClock()
        settings_ = RecorderSettings(num_warmup_iters=LOOP_STAGES["train"], on_misuse="warn")
        self.recorder = PhaseRecorder(settings_, self.clock)
        self.rows: list[dict[str, int]] = []
        self.expected_rows: list[Counter[str]] = []
        self.recorder.hand_on_to(lambda iteration: self.rows.append(iteration.ns))
        self.stages: dict[str, ModelLoopStage] = {}
        self.stage = self.model_of("train")
        self.iteration: ModelLedger | None = None
        self.between: ModelLedger | None = None
        STOPWATCH._attach(self.recorder)

    def model_of(self, stage: str) -> ModelLoopStage:
        return self.stages.setdefault(stage, ModelLoopStage(LOOP_STAGES[stage]))

    def drive(self, call: Callable[..., object], *arguments: Any) -> None:
        """Calls something on the thread of the loop."""
        self.threads.on(0, call, *arguments)

    @rule(ns=st.integers(1, 7))
    def let_time_pass(self, ns: int) -> None:
        self.clock.advance(ns)

    # ---- the loop ----

    @precondition(lambda self: self.iteration is None and self.between is None)
    @rule(stage=st.sampled_from(sorted(LOOP_STAGES)))
    def begin_stage(self, stage: str) -> None:
        self.drive(self.recorder.begin_stage, stage)
        self.stage.take_outside()
        self.stage = self.model_of(stage)

    @precondition(lambda self: self.iteration is None and self.between is None)
    @rule()
    def restart_warmup(self) -> None:
        self.drive(self.recorder.restart_warmup)
        for name, stage in self.stages.items():
            stage.warmup_left = LOOP_STAGES[name]

    @precondition(lambda self: self.iteration is None and self.between is None)
    @rule()
    def begin_iteration(self) -> None:
        self.drive(self.recorder.begin_iteration)
        self.stage.take_outside()
        self.iteration = ModelLedger(self.clock.now_ns)

    @rule(phase=st.sampled_from(LOOP_PHASES), since_last=st.booleans())
    def enter(self, phase: str, since_last: bool) -> None:
        self.drive(self.recorder.enter, phase, since_last and self.iteration is not None)
        if self.iteration is not None:
            self.iteration.enter(phase, self.clock.now_ns, since_last)
        else:
            self.between = self.between or ModelLedger(self.clock.now_ns)
            self.between.enter(phase, self.clock.now_ns, since_last=False)

    @precondition(lambda self: self.open_phases > 0)
    @rule(paused=st.booleans())
    def leave(self, paused: bool) -> None:
        if self.iteration is not None:
            self.drive(self.recorder.leave, paused)
            self.iteration.leave(self.clock.now_ns, paused)
        elif self.between is not None:
            self.drive(self.recorder.leave)
            self.between.leave(self.clock.now_ns, paused=False)
            if len(self.between.frames) == 1:
                for name, ns in self.between.samples:
                    add(self.stage.between, f"between_iterations/{name}", ns)
                self.between = None

    @property
    def open_phases(self) -> int:
        ledger = self.iteration or self.between
        return 0 if ledger is None else len(ledger.frames) - 1

    @precondition(lambda self: self.iteration is not None)
    @rule(at_last=st.booleans())
    def end_iteration(self, at_last: bool) -> None:
        assert self.iteration is not None
        while self.open_phases:
            self.leave(paused=False)
        for phase in list(self.iteration.paused):  # what was paused goes on before the iteration ends
            self.enter(phase, since_last=False)
            self.leave(paused=False)
        self.drive(self.recorder.close_iteration, at_last)
        self.drive(self.recorder.count_iteration, IterationLabel())
        ledger, self.iteration = self.iteration, None
        total = ledger.close(self.clock.now_ns, at_last)
        if not self.stage.warmup_left:
            users = [(name, ns) for name, each in self.stage.measurements.items() for ns in each.current]
            row: Counter[str] = Counter()
            for name, ns in (*ledger.samples, *users):
                row[name] += ns
            self.expected_rows.append(row)
            for name, ns in ledger.samples:
                add(self.stage.phases, name, ns)
        self.stage.finish(0, total)

    @precondition(lambda self: self.between is None)
    @rule(actions=st.lists(IN_AN_ITERATION, max_size=12), at_last=st.booleans())
    def whole_iteration(self, actions: list[tuple[str, str, str, int]], at_last: bool) -> None:
        if self.iteration is None:
            self.begin_iteration()
        for action, phase, name, thread in actions:
            self.let_time_pass(3)
            if action == "enter":
                self.enter(phase, since_last=False)
            elif action == "leave" and self.open_phases:
                self.leave(paused=False)
            elif action == "start":
                self.start_meas(thread, name)
            elif action == "end":
                self.end_meas(thread, name)
        self.end_iteration(at_last)

    @precondition(lambda self: self.iteration is not None)
    @rule()
    def drop_iteration(self) -> None:
        while self.open_phases:
            self.leave(paused=False)
        self.drive(self.recorder.drop_iteration)
        self.stage.drop()
        self.iteration = None

    # ---- the user ----

    @rule(thread=ANY_THREAD, name=ANY_NAME)
    def start_meas(self, thread: int, name: str) -> None:
        self.threads.on(thread, STOPWATCH.start_meas, name)
        self.stage.start(thread, name, self.clock.now_ns)

    @rule(thread=ANY_THREAD, name=ANY_NAME)
    def end_meas(self, thread: int, name: str) -> None:
        self.threads.on(thread, STOPWATCH.end_meas, name)
        others = [stage for stage in self.stages.values() if stage is not self.stage]
        for stage in (self.stage, *others):
            if thread in getattr(stage.measurements.get(name), "openings", {}):
                stage.end(thread, name, self.clock.now_ns)
                return

    @rule(thread=ANY_THREAD)
    def finish_iter_has_no_say(self, thread: int) -> None:
        self.threads.on(thread, STOPWATCH.finish_iter)

    # ---- what came of it ----

    @invariant()
    def every_row_adds_up(self) -> None:
        self.recorder.work_off()
        assert self.rows == self.expected_rows
        for row in self.rows[-1:]:
            assert sum(row.get(phase, 0) for phase in PHASES) == row[ITERATION]
            assert row.get(CALLBACKS, 0) == sum(ns for name, ns in row.items() if name.startswith(f"{CALLBACKS}/"))
            assert min(row.values()) >= 0

    @invariant()
    def the_figures_are_the_models(self) -> None:
        figures = self.recorder.figures()
        for name, model in self.stages.items():
            if name not in figures.stages:
                continue
            stage = figures.stages[name]
            check_iterations(stage, model)
            for phase, samples in model.phases.items():
                check_counted(stage.measurements[phase], samples, model.iterations_ns)
            for users, measurement in model.measurements.items():
                outside = model.outside.get(users)
                check_counted(stage.measurements[users], measurement.counted, model.iterations_ns, outside)

    def teardown(self) -> None:
        if self.iteration is not None:
            self.drop_iteration()
        while self.open_phases:
            self.leave(paused=False)
        self.drive(self.recorder.take_outside)
        for model in self.stages.values():
            model.take_outside()
        self.the_figures_are_the_models()
        for name, stage in self.recorder.figures().stages.items():
            between = {phase: each for phase, each in stage.measurements.items() if phase.startswith("between_")}
            assert set(between) == set(self.stages[name].between)
            for phase, samples in self.stages[name].between.items():
                check_counted(between[phase], samples, self.stages[name].iterations_ns, samples)
        check_open(self.recorder, self.stage)
        self.threads.close()
        STOPWATCH.reset()


TestRecorder = RecorderMachine.TestCase
TestRecorder.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
