"""What a run found: figures and ratios, as a table for people and as JSON to keep."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).with_name("results")


@dataclass(frozen=True, slots=True)
class Ratio:
    """The product's figure over a peer's; ``floor`` must be reached, ``goal`` is where it shall go."""

    peer: str
    product_figure: float
    peer_figure: float
    floor: float
    goal: float

    @property
    def value(self) -> float:
        """Product over peer."""
        return self.product_figure / self.peer_figure


@dataclass(slots=True)
class Answer:
    """What was found on one question; ``unit`` is that of the figures, ``turns`` all that were measured."""

    question: str
    asked: str
    unit: str
    parameters: Mapping[str, Any]
    versions: Mapping[str, str]
    ratios: list[Ratio] = field(default_factory=list)
    turns: list[Mapping[str, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def show(console: Console, answers: Sequence[Answer]) -> None:
    """Print one table of all ratios, and below it what was left out."""
    table = Table(title="Product against peers, medians of turns on one machine")
    for heading in ("question", "peer"):
        table.add_column(heading, overflow="fold")
    for heading in ("product", "peer's", "ratio", "floor", "goal"):
        table.add_column(heading, justify="right")
    for answer in answers:
        for ratio in answer.ratios:
            figures = (f"{ratio.product_figure:,.0f}", f"{ratio.peer_figure:,.0f}")
            limits = (f"≥ {ratio.floor:g}", f"≥ {ratio.goal:g}")
            name = f"{answer.question}, {answer.unit}"
            table.add_row(name, ratio.peer, *figures, _colored(ratio), *limits)
    console.print(table)
    for answer in answers:
        for line in answer.left_out:
            console.print(f"{answer.question}: {line}", style="yellow", soft_wrap=True)


def write(answer: Answer) -> Path:
    """Write an answer to its file among the results, in place of the last one; gives the file."""
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"{answer.question.lower()}.json"
    ratios = [{**asdict(ratio), "ratio": round(ratio.value, 3)} for ratio in answer.ratios]
    content = {**asdict(answer), "ratios": ratios, "machine": _machine(), "commit": _commit()}
    target.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return target


def _colored(ratio: Ratio) -> str:
    color = "red" if ratio.value < ratio.floor else "green" if ratio.value >= ratio.goal else "yellow"
    return f"[{color}]{ratio.value:.2f}[/]"


def _machine() -> dict[str, Any]:
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load_average_after": [round(load, 1) for load in os.getloadavg()],
        "python": platform.python_version(),
    }


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    done = subprocess.run(command, cwd=RESULTS, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
