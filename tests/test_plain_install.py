"""What the command line offers where walkway was installed without extras and is run outside
of its checkout."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PACKAGES = ("protos", "service", "schedulers", "memory", "models", "bench", "cli")
EXTRAS = {"flashinfer", "hypothesis", "matplotlib", "tvm_ffi"}
OPTIONAL = {"pynvml"}
"""Done without where it is missing."""

GENERATOR = ROOT / "protos" / "describe.py"
"""Run by `make protos` alone."""

COMMANDS = (
    *("serve", "demo", "doctor", "settings"),
    *("generate", "chat", "tokenize", "info", "health"),
    *("requests", "top", "scheduler"),
    *("schedulers", "check-scheduler", "simulate", "calibrate"),
)
HIDE = f"""
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that hides the extras' modules from every Python started with it."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "sitecustomize.py").write_text(HIDE)
    return folder


def walkway(plain: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run where nothing of the checkout lies."""
    cwd = plain / "elsewhere"
    cwd.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-P", "-m", "cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "HOME": str(plain), "PYTHONPATH": str(plain)},
    )


def test_every_command_is_offered(plain: Path) -> None:
    helped = walkway(plain, "--help").stdout
    assert not [name for name in COMMANDS if f" {name} " not in helped]


def test_a_simulation_runs_without_pictures_and_says_what_draws_them(plain: Path) -> None:
    ran = walkway(plain, "simulate", "--scheduler", "fcfs", "--requests", "8")
    assert ran.returncode == 0, ran.stderr
    told = "walkway: no pictures: matplotlib is not installed: pip install matplotlib"
    assert told in ran.stderr.splitlines()
    written = {path.name for path in (plain / "elsewhere" / "simulation").iterdir()}
    assert written == {"simulation.json", "fcfs.csv"}


@pytest.mark.parametrize(
    ("command", "package"),
    [
        (("simulate", "--pictures", "--scheduler", "fcfs"), "matplotlib"),
        (("check-scheduler", "fcfs"), "hypothesis"),
    ],
)
def test_what_needs_a_package_names_it_and_how_it_is_installed(
    plain: Path, command: tuple[str, ...], package: str
) -> None:
    ran = walkway(plain, *command)
    assert ran.returncode == 2
    assert ran.stderr == f"walkway: {package} is not installed: pip install {package}\n"


def test_schedulers_are_listed_and_the_demo_runs(plain: Path) -> None:
    assert "fcfs" in walkway(plain, "schedulers").stdout
    mine = plain / "elsewhere" / "cli"  # a user's package of that name is not ours
    mine.mkdir(parents=True)
    for name in ("__init__.py", "main.py"):
        (mine / name).touch()
    ran = walkway(plain, "demo", "--model", "toy", "--max-tokens", "4")
    assert ran.returncode == 0, ran.stderr


def test_every_file_that_the_code_reads_is_in_the_wheel() -> None:
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packed = ["*.py", "*.so", *tables["package-data"]["*"]]
    found = (path for package in PACKAGES for path in (ROOT / package).rglob("*.*"))
    files = [path for path in found if path.suffix not in (".md", ".pyc") and path.is_file()]
    assert not [path for path in files if not any(fnmatch(path.name, p) for p in packed)]


def test_every_package_that_is_imported_is_required() -> None:
    lines = metadata.requires("walkway") or []
    required = {r.name.lower() for r in map(Requirement, lines) if r.marker is None}
    owners = metadata.packages_distributions()
    # An index takes - and _ for the same.
    required = {name.replace("_", "-") for name in required}
    missing = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path, name in imported()
        if name not in {*sys.stdlib_module_names, *PACKAGES, *EXTRAS, *OPTIONAL}
        and not required & {o.lower().replace("_", "-") for o in owners.get(name, [])}
    }
    assert not missing


def imported() -> Iterator[tuple[Path, str]]:
    for package in PACKAGES:
        for path in {*(ROOT / package).rglob("*.py")} - {GENERATOR}:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom):
                    yield path, (node.module or "").partition(".")[0]
                elif isinstance(node, ast.Import):
                    yield from ((path, a.name.partition(".")[0]) for a in node.names)
