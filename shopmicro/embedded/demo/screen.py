"""What the reader sees: lines, tables, and on a terminal colours and what is being waited for."""

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDEST = 100
SECONDS_AT = 70

Rows = Mapping[str, Sequence[str]]


class Screen:
    """Standard output for results, standard error for the one line that says what went wrong."""

    def __init__(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
        self._console = Console(highlight=False, emoji=False, markup=False)
        self._console.width = min(self._console.width, WIDEST)

    @contextlib.contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Say what is being done, and at its end how long it took."""
        started = time.monotonic()
        label = f"  {what} "
        if self._console.is_terminal:
            with self._console.status(what):
                yield
            self._console.print(label, end="")
        else:
            self._console.print(label, end="")
            try:
                yield
            except BaseException:
                self._console.print()
                raise
        seconds = f"{time.monotonic() - started:.1f} s"
        self._console.print(seconds.rjust(SECONDS_AT + 8 - len(label)), style="dim")

    def say(self, text: str, *, style: str = "") -> None:
        """Say something, wrapped between words."""
        self._console.print(Text(text, style=style))

    def title(self, text: str) -> None:
        """Begin a part."""
        self._console.print()
        self._console.rule(Text(f" {text} ", style="bold cyan"), align="left", style="cyan")

    def table(self, *sections: Rows) -> None:
        """Show names and what is to be said of each, a line between the sections."""
        table = Table(box=box.ROUNDED, show_header=False, border_style="dim", expand=True)
        table.add_column(no_wrap=True, style="bold")
        table.add_column(ratio=1)
        for section in sections:
            for name, lines in section.items():
                table.add_row(name, Text("\n".join(lines) or "nothing"))
            table.add_section()
        self._console.print(table)

    def fail(self, sentence: str) -> None:
        """Say in one line what went wrong and what to do."""
        line = " ".join(sentence.split())
        Console(stderr=True, highlight=False, emoji=False, markup=False, soft_wrap=True).print(
            f"demo: {line}", style="red"
        )
