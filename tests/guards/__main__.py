"""Takes each guard away, one at a time, in a copy of the tree, and names the test that notices.

`make guards`. Fails if a removal goes unnoticed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.guards.removals import REMOVALS, Removal

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".demo", "__pycache__", "*_cache", ".hypothesis")
QUIETLY = ("-q", "--no-header", "--tb=no", "-p", "no:cacheprovider")


class Gone(Exception):
    """The text that makes a guard is not where it was, or its test is: write the removal anew."""


def copy_of_the_tree(directory: str) -> Path:
    """Copy the tree into a directory."""
    return Path(shutil.copytree(ROOT, Path(directory) / "tree", ignore=LEFT_OUT))


def remove(tree: Path, removal: Removal) -> None:
    """Take a guard out of a copy. Raises Gone."""
    for edit in removal.edits:
        file = tree / edit.path
        text = file.read_text()
        if text.count(edit.guard) != 1:
            raise Gone(f"{removal.name}: {edit.path} holds {text.count(edit.guard)} times: {edit.guard!r}")
        file.write_text(text.replace(edit.guard, edit.without))


def failing(tree: Path, tests: Sequence[str]) -> list[str]:
    """Run tests in a copy; gives the ids of those that fail."""
    command = [sys.executable, "-m", "pytest", *QUIETLY, *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if done.returncode not in (0, 1) or (done.returncode == 1) != bool(lines):
        raise Gone(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return [line.split()[1] for line in lines]


def notice(removal: Removal) -> str:
    """Take a guard away; gives the name of the test that notices, an empty text if none does."""
    with tempfile.TemporaryDirectory() as directory:
        tree = copy_of_the_tree(directory)
        remove(tree, removal)
        return next(iter(failing(tree, removal.tests)), "").split("::")[-1]


def main() -> int:
    """Take every guard away in turn and show who noticed; gives 0 if each was noticed."""
    with tempfile.TemporaryDirectory() as directory:
        tests = sorted({test for removal in REMOVALS for test in removal.tests})
        if broken := failing(copy_of_the_tree(directory), tests):
            print(f"these fail with every guard in place: {', '.join(broken)}", file=sys.stderr)
            return 1
    table = Table("guard taken away", title="Every guard is there for a reason")
    table.add_column("noticed by", overflow="fold")
    unnoticed = 0
    for removal in REMOVALS:
        name = notice(removal)
        unnoticed += not name
        table.add_row(removal.name, name or "nobody", style=None if name else "red")
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    print(f"{len(REMOVALS) - unnoticed} passed, {unnoticed} failed")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
