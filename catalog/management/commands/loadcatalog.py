"""Load a catalogue file into the products."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from catalog.operations import SHIPPED, load_catalog


class Command(BaseCommand):
    """``manage.py loadcatalog``: adds what is missing, changes nothing that is there."""

    help = "Add the catalogue's products that are missing; those that are there stay as they are."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take another file than the shipped one."""
        parser.add_argument("path", nargs="?", type=Path, default=SHIPPED, help="a catalogue file (JSON)")

    def handle(self, *, path: Path, **options: Any) -> None:
        """Load the file and say what came of it."""
        loaded = load_catalog(path=path)
        self.stdout.write(f"loadcatalog: {loaded.added} products added, {loaded.kept} left as they were")
