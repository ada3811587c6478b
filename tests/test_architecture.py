"""Who may import whom: packages in one direction, and each library from one module.

The order of the packages is a contract in pyproject.toml, which `lint-imports` checks; the libraries are listed here.
Both checks are shown to find what is wrong.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Which files of specli/ import what is not Python's own; a folder ends in a slash, '' is everywhere.
LIBRARIES = {
    "filelock": ["models/files.py", "state/sessions.py"],
    "huggingface_hub": ["models/hub.py"],
    "jinja2": ["llama/rendering.py"],
    "llama_cpp": ["llama/"],
    "matplotlib": ["terminal/plots.py"],
    "msgspec": ["state/data.py"],
    "numpy": [""],
    "platformdirs": ["state/paths.py"],
    "prompt_toolkit": ["terminal/chat/editor.py"],
    "psutil": ["llama/hardware.py"],
    "rich": ["terminal/console.py", "terminal/reply_view.py"],
    "typer": ["terminal/"],
}
# Of Python's own modules, those that not every system has.
SOME_SYSTEMS = {"curses", "fcntl", "grp", "msvcrt", "pty", "pwd", "readline", "resource", "termios", "tty", "winreg"}
LIBRARIES |= {name: ["terminal/interrupts.py", "terminal/processes.py"] for name in SOME_SYSTEMS}
LIBRARIES["resource"] = ["llama/rendering.py"]


def misplaced_imports(package: Path) -> list[str]:
    """Return each import of a library outside its module as 'file: library'."""
    found = []
    for path in sorted(package.rglob("*.py")):
        file = path.relative_to(package).as_posix()
        for name in sorted(imported_names(ast.parse(path.read_bytes()))):
            homes = LIBRARIES.get(name, [""] if name in {"specli", *sys.stdlib_module_names} else [])
            if not any(file == home or (home[-1:] in ("", "/") and file.startswith(home)) for home in homes):
                found.append(f"{file}: {name}")
    return found


def imported_names(tree: ast.Module) -> set[str]:
    """Return the top-level packages that a module imports, wherever in the module it does."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names.add(str(node.module).split(".")[0])
    return names


def broken_contracts(root: Path) -> str:
    """Return what `lint-imports` complains about in a checkout, '' if nothing."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    done = subprocess.run(
        [*command, "--no-cache", "--no-logo"],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout if done.returncode else ""


def test_a_package_imports_only_from_those_below_it():
    assert broken_contracts(ROOT) == ""


def test_libraries_are_imported_where_they_belong():
    assert misplaced_imports(ROOT / "specli") == []


@pytest.fixture
def copy(tmp_path):
    """A copy of the checkout to break."""
    shutil.copytree(ROOT / "specli", tmp_path / "specli", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("decoding/loop.py", "import specli.state.paths", "specli.decoding.loop -> specli.state.paths"),
        ("llama/gguf.py", "def f():\n    from specli.models import files", "specli.llama.gguf -> specli.models.files"),
        (
            "evaluation/machine.py",
            "from specli.terminal.console import note",
            "specli.evaluation.machine -> specli.ter",
        ),
        ("errors.py", "from specli.decoding import loop", "specli.errors -> specli.decoding.loop"),
        ("novelty.py", "", "novelty"),  # a module whose position nobody has decided
    ],
)
def test_an_import_in_the_wrong_direction_is_found(copy, file, line, complaint):
    with (copy / "specli" / file).open("a") as source:
        source.write(f"\n{line}\n")
    assert complaint in broken_contracts(copy)


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("engine/engine.py", "import rich.text", "rich"),
        ("terminal/app.py", "def f():\n    from prompt_toolkit import PromptSession", "prompt_toolkit"),
        ("models/files.py", "if 0:\n    from huggingface_hub import constants", "huggingface_hub"),
        ("evaluation/machine.py", "import numpy, psutil as p", "psutil"),
        ("state/sessions.py", "import fcntl", "fcntl"),
        ("llamas.py", "import llama_cpp", "llama_cpp"),
        ("decoding/loop.py", "import scipy", "scipy"),  # one that is in no list
    ],
)
def test_a_library_in_the_wrong_module_is_found(copy, file, line, complaint):
    with (copy / "specli" / file).open("a") as source:
        source.write(f"\n{line}\n")
    assert misplaced_imports(copy / "specli") == [f"{file}: {complaint}"]


def test_modules_and_signatures_stay_small():
    """At 400 lines a module holds two ideas; a function that takes more than twelve things wants an object."""
    for path in (ROOT / "specli").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") <= 400, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                arguments = node.args
                assert len(arguments.posonlyargs + arguments.args + arguments.kwonlyargs) <= 12, (path, node.name)
