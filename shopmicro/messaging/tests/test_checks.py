"""What the checks find in a configuration, by id, and that they let a sensible one pass."""

from datetime import timedelta
from typing import Any

import pytest
from django.core.checks import run_checks

MISTAKES = [
    *(
        ("E001", {name: 0})
        for name in (
            "CALL_CONCURRENCY",
            "SAGA_BATCH",
            "CONSUMER_BATCH",
            "NOTIFY_BATCH",
            "OUTBOX_BATCH",
            "CONSUMER_BATCH_BYTES",
            "OUTBOX_SHARDS",
            "OUTBOX_POLL_INTERVAL",
            "TOPIC_PARTITIONS",
            "TOPIC_REPLICATION",
            "RETRY_DELAY",
        )
    ),
    ("E001", {"RETRY_ATTEMPTS": 1}),
    ("E001", {"RETRY_DELAY": float("nan"), "RETRY_MAX_DELAY": 1.0}),
    ("E001", {"RETRY_MAX_DELAY": float("inf")}),
    ("E001", {"OUTBOX_POLL_INTERVAL": 10.5}),
    ("E001", {"PAYMENT_LIMIT_CENTS": -1}),
    ("E001", {"METRICS_PORT": 65_536}),
    ("E001", {"DATABASE_CONN_MAX_AGE": -1}),
    ("E002", {"RETRY_ATTEMPTS": 8, "RETRY_OUTAGE_ATTEMPTS": 7}),
    ("E003", {"RETRY_DELAY": 2.0, "RETRY_MAX_DELAY": 1.0}),
    ("E004", {"KAFKA_GROUP_PROTOCOL": "Consumer"}),
    ("E004", {"LOG_FORMAT": "xml"}),
    ("E004", {"LOG_LEVEL": "LOUD"}),
    *(("E005", {"CURRENCY": currency}) for currency in ("", "eur", "EURO", "EUR\n", "\u0410\u0411\u0412")),
    ("E006", {"CRASH_POINT": "after-poll"}),
    *(
        ("E007", {"CRASH_POINT": point, "TEST_SYSTEM": True})
        for point in ("somewhere", "after-poll:often", "after-poll:", ":1")
    ),
    ("E008", {"WORKERS": ["runsaga", "runsago"]}),
    ("E009", {"NOTIFY_MAX_AGE": timedelta(seconds=-1)}),
    ("E009", {"NOTIFY_MAX_AGE": timedelta(days=4000)}),
]
SENSIBLE = [
    {},
    {"SAGA_BATCH": 1, "CONSUMER_BATCH": 1, "NOTIFY_BATCH": 1, "OUTBOX_BATCH": 1, "CALL_CONCURRENCY": 1},
    {"RETRY_ATTEMPTS": 2, "RETRY_OUTAGE_ATTEMPTS": 2, "RETRY_DELAY": 0.01, "RETRY_MAX_DELAY": 0.01},
    {"OUTBOX_POLL_INTERVAL": 10.0, "PAYMENT_LIMIT_CENTS": 0, "DATABASE_CONN_MAX_AGE": 0},
    {"KAFKA_GROUP_PROTOCOL": "classic", "LOG_FORMAT": "json", "LOG_LEVEL": "DEBUG", "CURRENCY": "USD"},
    {"CRASH_POINT": "after-poll:3", "TEST_SYSTEM": True},
    {"WORKERS": [], "NOTIFY_MAX_AGE": timedelta(0)},
]


def found_with(settings: Any, values: dict[str, Any]) -> list[Any]:
    for name, value in values.items():
        setattr(settings, name, value)
    return run_checks(tags=["configuration"])


@pytest.mark.parametrize(("number", "values"), MISTAKES, ids=[str(values) for _, values in MISTAKES])
def test_a_mistake_is_an_error_of_one_line_that_names_the_setting_and_what_to_set(
    settings: Any, number: str, values: dict[str, Any]
) -> None:
    (error,) = found_with(settings, values)
    assert error.id == f"shopmicro.{number}"
    assert error.is_serious()
    assert any(name in error.msg for name in values)
    assert "set it to" in error.msg or "unset it" in error.msg or "choose of" in error.msg
    assert "\n" not in error.msg


@pytest.mark.parametrize("values", SENSIBLE, ids=str)
def test_what_makes_sense_passes(settings: Any, values: dict[str, Any]) -> None:
    assert found_with(settings, values) == []


def test_all_mistakes_are_told_at_once(settings: Any) -> None:
    found = found_with(settings, {"SAGA_BATCH": 0, "CURRENCY": "euro", "RETRY_MAX_DELAY": 0.0})
    assert [error.id[-4:] for error in found] == ["E001", "E001", "E003", "E005"]
