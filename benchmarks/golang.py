"""Building the peers that are written in Go."""

import shutil
import subprocess
from pathlib import Path

from shopmicro.embedded.errors import EmbeddedError


def missing_go() -> str | None:
    """One line on what keeps the peers in Go from being built, or None if nothing does."""
    return None if shutil.which("go") else "Go is missing: install it, so that go is found on the PATH"


def build(package: Path, target: Path) -> Path:
    """Build a Go program; gives the target. Raises EmbeddedError."""
    done = subprocess.run(
        ["go", "build", "-o", str(target), "."], cwd=package, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise EmbeddedError(f"go could not build {package.name}: {done.stderr.strip().splitlines()[-1]}")
    return target
