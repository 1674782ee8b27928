from __future__ import annotations

import os
import shlex
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest
import torch
from nvtx_recording import attached, built_recorder
from programs import output_of, run_program

from lightning_timing.autoload import callbacks_from_environment
from lightning_timing.callbacks.from_environment import TimingFromEnvironment
from lightning_timing.cli.main import main
from lightning_timing.nvtx_domain import DOMAIN
from lightning_timing.presets import load_preset
from lightning_timing.profiling_check import check_profiling
from lightning_timing.profiling_commands import PROFILING_COMMANDS

if TYPE_CHECKING:
    from pathlib import Path

nvtx = pytest.importorskip("nvtx")
ASKS_THE_TOOL = hasattr(nvtx, "Domain") and hasattr(nvtx.Domain, "push_range")


@pytest.fixture(scope="module")
def recorder() -> str:
    """A library that takes the domain. Compiled before `no_tools` takes the compiler off the path."""
    return str(built_recorder())


@pytest.fixture(autouse=True)
def no_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A path on which nothing is but what a test puts there, and no tool attached."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)
    monkeypatch.delenv("NVTX_DISABLE", raising=False)


def fake_nsys(
    tmp_path: Path, *, library: str | None, version: str = "2023.4.4.54-234433681190v0", broken: bool = False
) -> None:
    """Puts an nsys on the path that attaches a library to the program it is given, as the real one does.

    Args:
        tmp_path: The test's folder.
        library: The library.
        version: What it says its version is.
        broken: Whether it cannot run programs.
    """
    attach = f"export NVTX_INJECTION64_PATH={shlex.quote(library or '')} NVTX_RECORDER_FILE={tmp_path}/nvtx.jsonl"
    script = tmp_path / "bin" / "nsys"
    script.write_text(
        f"""#!/bin/sh
if [ "$1" = --version ]; then echo "NVIDIA Nsight Systems version {version}"; exit; fi
{"exit 1" if broken else attach}
while [ "$1" != {shlex.quote(sys.executable)} ]; do shift; done
exec "$@"
"""
    )
    script.chmod(0o755)


def test_versions_are_found_without_importing_torch(tmp_path: Path) -> None:
    code = """
        import sys
        from lightning_timing.profiling_check import check_profiling
        found = check_profiling()
        print(sorted({"torch", "lightning"} & set(sys.modules)))
        print(found.torch, found.cuda, found.nvtx)
    """
    known = f"{version('torch')} {torch.version.cuda} {version('nvtx')}"
    assert output_of(run_program(code, tmp_path)).splitlines() == ["[]", known]


@pytest.mark.parametrize(
    ("line", "cuda"),
    [
        ("cuda: Optional[str] = '12.4'", "12.4"),
        ('cuda = "13.0"', "13.0"),
        ("cuda: Optional[str] = None", None),
        ("hip = '6.0'", None),
    ],
)
def test_cuda_is_read_from_torchs_version_file(
    line: str, cuda: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_built_with(line, tmp_path, monkeypatch)

    assert check_profiling().cuda == cuda


def torch_built_with(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a torch that can be found, whose version file has this line."""
    package = folder / "torch"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "version.py").write_text(f"__version__ = '2.13.0'\n{line}\nhip = None\n")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(str(folder))


def test_without_nsys_it_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_profiling().arrive is None
    assert main(["check"]) == 0
    assert "not known whether ranges arrive: nsys is not on the path" in capsys.readouterr().out


@pytest.mark.skipif(not ASKS_THE_TOOL, reason="this nvtx does not ask the tool, so none refuses it")
@pytest.mark.parametrize(
    ("line", "verdict", "by_torch"),
    [
        ("cuda = None", "RANGES WOULD BE LOST", False),
        ("cuda = '13.0'", "RANGES WOULD ARRIVE WITHOUT THEIR DOMAIN", True),
    ],
)
def test_an_nsys_that_refuses_the_domain(
    line: str,
    verdict: str,
    by_torch: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    torch_built_with(line, tmp_path, monkeypatch)
    library = tmp_path / "libRefuses.so"
    library.touch()
    fake_nsys(tmp_path, library=str(library))

    assert main(["check"]) == 1
    out = capsys.readouterr().out
    assert f"{verdict}: the tool (Nsight Systems 2023.4.4.54) refuses" in out
    assert "pip install nvtx==0.2.11" in out
    assert ("torch's own NVTX takes its place" in out) is by_torch
    assert f"2023.4.4.54 ({tmp_path}/bin/nsys)" in out


def test_an_nsys_that_takes_the_domain(recorder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake_nsys(tmp_path, library=recorder, version="2026.1.1.1-1")

    assert main(["check"]) == 0
    assert "ranges arrive: a domain was opened in a process under nsys" in capsys.readouterr().out


@pytest.mark.parametrize("broken", [True, False])
def test_an_nsys_that_does_not_work_here(tmp_path: Path, *, broken: bool) -> None:
    fake_nsys(tmp_path, library=None, broken=broken)

    assert check_profiling().arrive is None
    assert "could not run a program" in check_profiling().explanation


def test_under_a_tool_the_domain_is_opened_in_this_process(recorder: str, tmp_path: Path) -> None:
    code = """
        from lightning_timing.profiling_check import check_profiling
        found = check_profiling()
        print(found.arrive, found.tool)
    """
    program = run_program(code, tmp_path, **attached(tmp_path / "nvtx.jsonl"))

    assert output_of(program) == f"True {recorder}\n"


def test_nvtx_disable_loses_ranges(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("NVTX_DISABLE", "0")

    assert main(["check"]) == 1
    assert (
        "RANGES WOULD BE LOST: NVTX_DISABLE=0 switches NVTX ranges off in Python: unset it" in capsys.readouterr().out
    )


def test_without_the_package_nvtx_ranges_are_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)

    assert main(["check"]) == 1
    assert "the package nvtx is not installed" in capsys.readouterr().out


def test_every_command_is_printed_as_it_is_typed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check"])
    out = capsys.readouterr().out
    for command in PROFILING_COMMANDS:
        assert f"# {command.title}\n{command.text}\n" in out


@pytest.mark.parametrize(("cuda", "first"), [(None, "one process, without CUDA"), ("13.0", "one process")])
def test_the_first_command_is_one_that_captures_something_here(
    cuda: str | None, first: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lightning_timing.profiling_check._cuda_of_torch", lambda: cuda)
    main(["check"])
    titles = [line.removeprefix("# ") for line in capsys.readouterr().out.splitlines() if line.startswith("# ")]

    assert titles[0] == first


def test_without_hydra_the_window_is_given_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    variable, _, value = words_of("without Hydra")[0].partition("=")
    monkeypatch.setenv(variable, value)
    (stand_in,) = callbacks_from_environment()

    assert isinstance(stand_in, TimingFromEnvironment)
    assert [type(callback).__name__ for callback in stand_in._callbacks][-1] == "CUDAProfilerCallback"


def words_of(title: str) -> list[str]:
    return next(shlex.split(command.text) for command in PROFILING_COMMANDS if title in command.title)


@pytest.mark.parametrize("title", ["one process", "without CUDA", "without Hydra", "torchrun", "srun", "starts itself"])
def test_no_command_kills_the_training_at_the_windows_end(title: str) -> None:
    assert "--capture-range-end=stop" in words_of(title)


@pytest.mark.parametrize(("title", "variable"), [("torchrun", "%q{RANK}"), ("srun", "%q{SLURM_PROCID}")])
def test_each_rank_has_a_file_of_its_own_and_a_window_to_fill_it(title: str, variable: str) -> None:
    (output,) = [word for word in words_of(title) if word.startswith("--output=")]
    assert variable in output
    assert "timing.cuda_profiler.ranks=all" in words_of(title)


def test_the_filters_name_the_domain_and_its_ranges() -> None:
    assert f"--nvtx-capture=capture@{DOMAIN}" in words_of("without CUDA")
    words = words_of("Nsight Compute")
    assert words[words.index("--nvtx-include") + 1] == f"{DOMAIN}@forward/"


def test_the_overrides_are_ones_that_the_presets_have() -> None:
    for command in PROFILING_COMMANDS:
        given = [word.removeprefix("timing.") for word in shlex.split(command.text) if word.startswith("timing.")]
        changed = load_preset("profiling", given)["cuda_profiler"]
        for override in given:
            name, _, value = override.removeprefix("cuda_profiler.").partition("=")
            assert str(changed[name]) == value


def test_the_probe_leaves_nothing_behind(recorder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    fake_nsys(tmp_path, library=recorder)
    before = set(os.listdir(tmp_path))
    check_profiling()

    assert set(os.listdir(tmp_path)) - before <= {"nvtx.jsonl"}
