"""The commands that run a timed training under Nsight Systems and Nsight Compute. The README and `check` show them."""

from __future__ import annotations

from typing import Final, NamedTuple

from lightning_timing.nvtx_domain import DOMAIN
from lightning_timing.preset_variable import VARIABLE


class ProfilingCommand(NamedTuple):
    """A command for one situation.

    Attributes:
        title: The situation.
        lines: The command, a shell line each.
        note: What to know about it; empty where there is nothing.
    """

    title: str
    lines: tuple[str, ...]
    note: str = ""

    @property
    def text(self) -> str:
        """The command as it is typed, over several lines."""
        return " \\\n    ".join(self.lines)


_PROGRAM: Final = "python train.py timing=profiling"
_WINDOW: Final = "timing.cuda_profiler.start_step=20 timing.cuda_profiler.num_steps=10"
_NO_HYDRA: Final = f"{VARIABLE}='profiling cuda_profiler.start_step=20 cuda_profiler.num_steps=10'"
_ALL_RANKS: Final = "timing.cuda_profiler.ranks=all"
_NSYS: Final = (
    "nsys profile --trace=cuda,nvtx --export=sqlite",
    "--capture-range=cudaProfilerApi --capture-range-end=stop",
)

_WITH_CUDA: Final = ProfilingCommand(
    "one process",
    (*_NSYS, "--output=profile", f"{_PROGRAM} {_WINDOW}"),
    "--capture-range-end=stop lets the training run on; the default ends it with SIGTERM.",
)
_WITHOUT_CUDA: Final = ProfilingCommand(
    "one process, without CUDA",
    (
        "nsys profile --trace=nvtx --sample=none --cpuctxsw=none --export=sqlite",
        f"--capture-range=nvtx --nvtx-capture=capture@{DOMAIN} --capture-range-end=stop",
        "--output=profile",
        f"{_PROGRAM} {_WINDOW}",
    ),
    "The others need CUDA, or --trace and --capture-range as here.",
)

PROFILING_COMMANDS: Final = (
    _WITH_CUDA,
    _WITHOUT_CUDA,
    ProfilingCommand(
        "a script without Hydra",
        (_NO_HYDRA, *_NSYS, "--output=profile", "python your_script.py"),
        "For one without these callbacks. In code: StopwatchCallback(), NVTXCallback(), CUDAProfilerCallback(20, 10).",
    ),
    ProfilingCommand(
        "torchrun, a profile for each rank",
        (
            "torchrun --nproc-per-node=4 --no-python",
            *_NSYS,
            "--output=profile.rank%q{RANK}",
            f"{_PROGRAM} {_WINDOW} {_ALL_RANKS}",
        ),
        "A rank whose window never opens writes no profile, hence ranks=all.",
    ),
    ProfilingCommand(
        "a launcher such as srun, a profile for each rank",
        (
            f"srun {_NSYS[0]}",
            *_NSYS[1:],
            "--output=profile.%h.rank%q{SLURM_PROCID}",
            f"{_PROGRAM} {_WINDOW} {_ALL_RANKS}",
        ),
        "With mpirun: %q{OMPI_COMM_WORLD_RANK}.",
    ),
    ProfilingCommand(
        "the processes that Lightning starts itself, in one profile",
        (*_NSYS, "--output=profile", f"{_PROGRAM} {_WINDOW} trainer.devices=4"),
        "The window of rank 0 is captured, on all of them.",
    ),
    ProfilingCommand(
        "the phases of a profile, beside the Stopwatch's figures",
        ("lightning-timing nsys profile.sqlite --run RUN",),
    ),
    ProfilingCommand(
        "the kernels of one phase, under Nsight Compute",
        (
            f'ncu --nvtx --nvtx-include "{DOMAIN}@forward/"',
            "--target-processes all --export kernels",
            f"{_PROGRAM} {_WINDOW}",
        ),
        "For backward add --nvtx-push-pop-scope process, which newer ones have: torch runs it on threads of its own.",
    ),
)


def commands_for(has_cuda: bool) -> tuple[ProfilingCommand, ...]:
    """The commands, first the one that captures something here."""
    if has_cuda:
        return PROFILING_COMMANDS
    return _WITHOUT_CUDA, *(command for command in PROFILING_COMMANDS if command is not _WITHOUT_CUDA)
