"""What `pip install` brings: the presets to every Hydra app, and all that the wheel should hold."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest
from omegaconf import OmegaConf
from programs import output_of, run_program

from lightning_timing.presets import load_preset, preset_names

REPOSITORY = Path(__file__).parents[1]
pytestmark = pytest.mark.timeout(300)

UNRELATED_APP = """
    import hydra
    from omegaconf import OmegaConf

    @hydra.main(version_base="1.3", config_path=None)
    def main(config):
        print(OmegaConf.to_yaml(config), end="")

    main()
"""


@dataclass(frozen=True)
class Installed:
    """An environment that has this package, and the dependencies of the one that runs the tests."""

    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def site_packages(self) -> Path:
        return next(self.folder.glob("lib/python*/site-packages"))

    def run(self, code: str, folder: Path, *arguments: str, **environment: str) -> str:
        return output_of(run_program(code, folder, *arguments, python=self.python, **environment))


def run_tool(*arguments: str) -> None:
    tool = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, check=False)
    assert tool.returncode == 0, tool.stderr


def install(folder: Path, *requirement: str) -> Installed:
    """Makes an environment in which this package comes from `requirement` alone."""
    venv.create(folder, with_pip=False)
    installed = Installed(folder)
    # A folder named in a .pth file is searched, but its own .pth files, of an editable install, are not read.
    (installed.site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    options = ["--quiet", "--no-deps", "--no-build-isolation"]
    run_tool("pip", "--python", installed.python, "install", *options, *requirement)
    return installed


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run_tool("build", "--wheel", "--no-isolation", "--outdir", str(folder), str(REPOSITORY))
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module", params=["wheel", "editable"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "editable":
        return install(folder, "--editable", str(REPOSITORY))
    return install(folder, str(request.getfixturevalue("wheel")))


def test_an_unrelated_hydra_app_finds_the_presets(installed: Installed, tmp_path: Path) -> None:
    config = installed.run(UNRELATED_APP, tmp_path, "+timing=evaluation", "timing.stopwatch.num_warmup_iters=20")
    assert OmegaConf.create(config).timing == load_preset("evaluation", ["stopwatch.num_warmup_iters=20"])


def test_it_finds_them_in_another_package_of_its_config(installed: Installed, tmp_path: Path) -> None:
    config = installed.run(UNRELATED_APP, tmp_path, "+timing@callbacks=profiling")
    assert OmegaConf.create(config).callbacks == load_preset("profiling")


def test_the_group_lists_the_presets_and_nothing_else(installed: Installed, tmp_path: Path) -> None:
    assert "timing: debug, evaluation, profiling, training\n" in installed.run(UNRELATED_APP, tmp_path, "--help")


def test_hydra_discovers_the_plugin_which_imports_nothing_heavy(installed: Installed, tmp_path: Path) -> None:
    code = """
        import sys
        from hydra.core.plugins import Plugins
        from hydra.plugins.search_path_plugin import SearchPathPlugin

        print([plugin.__name__ for plugin in Plugins.instance().discover(SearchPathPlugin)])
        print(sorted({"torch", "lightning", "pytorch_lightning", "numpy", "plotly"}.intersection(sys.modules)))
    """
    assert installed.run(code, tmp_path).splitlines() == ["['LightningTimingSearchPath']", "[]"]


def test_the_package_is_the_installed_one(installed: Installed, tmp_path: Path) -> None:
    """Otherwise the tests above would show nothing."""
    code = "import lightning_timing; print(lightning_timing.__file__)"
    source = REPOSITORY / "src" if "editable" in installed.folder.name else installed.site_packages
    assert Path(installed.run(code, tmp_path).strip()) == source / "lightning_timing" / "__init__.py"


def test_a_trainer_finds_the_entry_points(installed: Installed, tmp_path: Path) -> None:
    code = """
        from importlib.metadata import entry_points

        for flavour in ("lightning.pytorch", "pytorch_lightning"):
            factories = entry_points(group=f"{flavour}.callbacks_factory")
            print([factory.load()() for factory in factories if factory.name == "lightning_timing"])
    """
    assert installed.run(code, tmp_path, LIGHTNING_TIMING="").splitlines() == ["[[]]", "[[]]"]


def test_what_the_wheel_holds(wheel: Path) -> None:
    names = set(ZipFile(wheel).namelist())
    presets = {f"lightning_timing/conf/timing/{name}.yaml" for name in preset_names()}
    assert presets | {"lightning_timing/py.typed", "hydra_plugins/lightning_timing_search_path/__init__.py"} <= names
    metadata = next(name.partition("/")[0] for name in names if name.endswith(".dist-info/METADATA"))
    assert f"{metadata}/licenses/LICENSE" in names
    assert {name.partition("/")[0] for name in names} == {"lightning_timing", "hydra_plugins", metadata}
    # The other distributions that bring plugins share hydra_plugins: it must stay a namespace package.
    assert "hydra_plugins/__init__.py" not in names
