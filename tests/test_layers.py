"""Who may import whom, and what importing the package costs."""

from __future__ import annotations

import ast
import re
import sys
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from programs import output_of, run_program

import lightning_timing

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = "lightning_timing"
ROOT = Path(lightning_timing.__file__).parent

# A module belongs to the first row whose names it matches: its own name or that of a package that holds it, below
# lightning_timing. It may import its own row, the rows that its row names, and of other distributions what they say.
LIGHTNING = {"lightning", "pytorch_lightning"}
HEAVY = {"torch", *LIGHTNING, "plotly"}


class Layer(NamedTuple):
    modules: set[str]
    may_import: set[str]
    """Other layers."""
    never: set[str]
    """Distributions that no module may import, wherever in the file."""
    lazily: set[str]
    """Distributions that are imported inside functions only."""


LAYERS = {
    "words": Layer({"errors", "clocks", "phases", "figures", "record"}, set(), HEAVY, set()),
    "reporting": Layer({"reporting"}, {"words", "core"}, {"torch", *LIGHTNING}, set()),
    "callbacks": Layer({"callbacks"}, {"words", "core", "reporting"}, {"plotly"}, set()),
    "command line": Layer({"cli", "__main__"}, {"words", "core", "reporting"}, HEAVY, set()),
    # What ties the layers together: Lightning's entry point, and a Stopwatch that prints.
    "ties": Layer({"__init__", "autoload", "live_report"}, {"words", "core", "callbacks", "reporting"}, HEAVY, set()),
    "core": Layer({"*"}, {"words"}, LIGHTNING | {"plotly"}, {"torch"}),
}


class Import(NamedTuple):
    name: str
    """The module, dotted."""
    lazy: bool
    """Inside a function, or read by the type checker alone."""

    @property
    def distribution(self) -> str:
        return self.name.partition(".")[0]


def module_name(file: Path) -> str:
    """The module's name below the package, dotted: `callbacks.factory`; a package's is that of its `__init__`."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


MODULES = {module_name(file): file for file in sorted(ROOT.rglob("*.py"))}


def layer_of(module: str) -> str:
    top = module.partition(".")[0]
    return next(name for name, layer in LAYERS.items() if layer.modules & {top, "*"})


def imports_of(module: str) -> list[Import]:
    return list(_imports(ast.parse(MODULES[module].read_text(encoding="utf-8")), lazy=False))


def _imports(node: ast.AST, *, lazy: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import(alias.name, lazy) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: imports are absolute here"
        yield from (Import(_target(node.module or "", alias.name), lazy) for alias in node.names)
    elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        for child in node.body:
            yield from _imports(child, lazy=True)
        for child in node.orelse:
            yield from _imports(child, lazy=lazy)
    else:
        inside = lazy or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            yield from _imports(child, lazy=inside)


def _target(package: str, name: str) -> str:
    """What `from package import name` imports: a module of ours, if there is one of that name, or the package."""
    dotted = f"{package}.{name}"
    return dotted if dotted.removeprefix(f"{PACKAGE}.") in MODULES else package


def ours(imported: Import) -> str:
    """The name below the package, of a module of ours."""
    return imported.name.removeprefix(PACKAGE).removeprefix(".") or "__init__"


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_downward(module: str) -> None:
    layer = layer_of(module)
    allowed = {layer, *LAYERS[layer].may_import}
    upward = [
        item.name for item in imports_of(module) if item.distribution == PACKAGE and layer_of(ours(item)) not in allowed
    ]
    assert upward == []


@pytest.mark.parametrize("module", MODULES)
def test_other_distributions_are_imported_where_their_layer_allows(module: str) -> None:
    layer = LAYERS[layer_of(module)]
    wrong = [
        item.name
        for item in imports_of(module)
        if item.distribution in layer.never or (item.distribution in layer.lazily and not item.lazy)
    ]
    assert wrong == []


@pytest.mark.parametrize("module", sorted(LAYERS["words"].modules))
def test_the_words_need_the_standard_library_alone(module: str) -> None:
    foreign = {item.distribution for item in imports_of(module)} - sys.stdlib_module_names - {PACKAGE}
    assert foreign == set()


ARCHITECTURE = ROOT.parents[1] / "docs" / "architecture.md"


@pytest.mark.skipif(not ARCHITECTURE.exists(), reason="the documentation is in the repository only")
def test_every_module_has_its_place_in_the_architecture() -> None:
    _, _, after = ARCHITECTURE.read_text(encoding="utf-8").partition("## Where things are")
    table, _, _ = after.partition("\n## ")
    named = set(re.findall(r"`([^`]+)`", table))
    within = ("reporting.", "cli.", "schemas.")
    missing = [name for name in MODULES if not name.startswith(within) and name.rpartition(".")[2] not in named]
    assert [name for name in missing if f"{name}/" not in named] == []


@pytest.mark.parametrize(
    ("one", "other"), [("callbacks", "reporting"), ("reporting", "callbacks")], ids=["callbacks", "reporting"]
)
def test_callbacks_and_reporting_do_not_know_each_others_insides(one: str, other: str) -> None:
    inside = [
        (module, item.name)
        for module in MODULES
        if layer_of(module) == one
        for item in imports_of(module)
        if item.name.startswith(f"{PACKAGE}.{other}.")
    ]
    assert inside == []


def test_no_module_needs_itself_to_be_imported() -> None:
    needed = {
        module: {ours(item) for item in imports_of(module) if item.distribution == PACKAGE and not item.lazy}
        for module in MODULES
    }
    assert set(TopologicalSorter(needed).static_order()) >= set(MODULES)


def test_importing_the_package_imports_nothing_heavy(tmp_path: Path) -> None:
    code = """
        import sys
        import lightning_timing
        from lightning_timing import NVTXRangeWrapper, Stopwatch, span
        heavy = {"torch", "lightning", "pytorch_lightning", "numpy", "plotly", "hydra", "scipy"}
        print(sorted(heavy.intersection(sys.modules)))
        # What is not heavy by itself is, at a quarter of all the time: dataclasses, and what they inspect modules with.
        print(sorted({"dataclasses", "inspect", "lightning_timing.figures"}.intersection(sys.modules)))
    """
    assert output_of(run_program(code, tmp_path)) == "[]\n[]\n"


def test_all_names_what_is_exported() -> None:
    tree = ast.parse(MODULES["__init__"].read_text(encoding="utf-8"))
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and _is_ours(node)]
    assert lightning_timing.__all__ == sorted(alias.name for node in imported for alias in node.names)


def _is_ours(node: ast.ImportFrom) -> bool:
    # live_report is handed to the Stopwatch, not exported.
    return (node.module or "").startswith(PACKAGE) and node.module != f"{PACKAGE}.live_report"


@pytest.mark.parametrize("name", lightning_timing.__all__)
def test_what_is_exported_is_there(name: str) -> None:
    assert callable(getattr(lightning_timing, name))
    assert name in dir(lightning_timing)
