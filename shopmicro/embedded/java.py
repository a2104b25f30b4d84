"""Kafka's Java programs, out of Maven's own repository of jars."""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from shopmicro.embedded.errors import EmbeddedError, tells_of_full_disk

OLDEST_JAVA = 17
POM = Path(__file__).with_name("kafka-pom.xml")


def missing_tool() -> str | None:
    """One line on what keeps Kafka's programs from running here, or None if nothing does."""
    version = java_version()
    if version is None:
        return f"Java is missing: install Java {OLDEST_JAVA} or newer, or set JAVA_HOME"
    if version < OLDEST_JAVA:
        return f"Java {version} is too old: install Java {OLDEST_JAVA} or newer, or set JAVA_HOME"
    if not shutil.which("mvn"):
        return "Maven is missing: install it, so that mvn is found on the PATH"
    return None


@cache
def java() -> str:
    """The program that runs Java: JAVA_HOME's, or the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


@cache
def java_version() -> int | None:
    """The major version, such as 17, or None without Java."""
    try:
        said = subprocess.run([java(), "-version"], capture_output=True, text=True, check=False).stderr
    except FileNotFoundError:
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None


def write_class_path(target: Path) -> None:
    """Write a file of java's arguments that put Kafka's jars on the class path; Maven downloads them."""
    if missing := missing_tool():
        raise EmbeddedError(missing)
    listing = target.with_suffix(".jars")
    options = ["-B", "-q", "-Dstyle.color=never", f"-Dmdep.outputFile={listing}"]
    command = ["mvn", *options, "-f", str(POM), "dependency:build-classpath"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise EmbeddedError(maven_failure(made.stdout + made.stderr))
    target.write_text(f'-cp "{listing.read_text().strip()}"\n')


def maven_failure(output: str) -> str:
    """One line that says why Maven failed."""
    if tells_of_full_disk(output):
        return "the disk that holds Maven's repository is full: free some space, and start again"
    errors = [line.strip() for line in output.splitlines() if "ERROR" in line] or [output.strip()]
    return f"Maven could not download Kafka: check the network; it said: {errors[0]}"
