"""The benchmark of large records, on small ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]


def test_the_benchmark_reports_a_long_run_and_a_wide_one() -> None:
    small = ["--iterations", "200", "--ranks", "3", "--rank-iterations", "20", "--markdown"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.big_record", *small],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if "x" in line]
    assert [row[0] for row in cells if row] == ["ranks x iterations", "1 x 200", "3 x 20"]
    assert all(float(row[3].removesuffix(" s")) > 0 for row in cells[-2:])
