"""What is done to the catalogue."""

import json
from dataclasses import dataclass
from pathlib import Path

from django.db import transaction

from catalog.models import Product

SHIPPED = Path(__file__).parent / "catalogue.json"


@dataclass(frozen=True, slots=True)
class Loaded:
    """How many products a load found new, and how many were there and stayed as they were."""

    added: int
    kept: int


def load_catalog(*, path: Path = SHIPPED) -> Loaded:
    """Add the products of a catalogue file that are not there yet, all of them or none.

    A product that is there stays as it is, every column of it: from the first load on the
    database is the truth, and a price or stock that an operator or an order has changed must
    not go back because someone loaded the file again.

    The file is a JSON list of objects with the names of `Product`'s fields. A product that
    the table refuses is an IntegrityError that names the constraint.
    """
    products = [Product(**members) for members in json.loads(path.read_text(encoding="utf-8"))]
    with transaction.atomic(durable=True):
        before = Product.objects.count()
        Product.objects.bulk_create(products, ignore_conflicts=True)
        added = Product.objects.count() - before
    return Loaded(added=added, kept=len(products) - added)
