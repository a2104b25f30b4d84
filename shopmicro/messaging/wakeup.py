"""Hearing that the outbox has new rows: a hint that saves waiting, never the only way to know."""

from typing import Any

from django.db import connection

from shopmicro.messaging.outbox import CHANNEL


class Wakeup:
    """Listens for NOTIFY on the current database session.

    A notification that comes while the session runs a query is kept until `clear` or `wait`.
    """

    def __init__(self) -> None:
        self._session: Any = None

    def listen(self) -> None:
        """Listen on the current session; again only after it was replaced."""
        if self._session is not None and self._session is connection.connection:
            return
        with connection.cursor() as cursor:
            cursor.execute(f"LISTEN {CHANNEL}")
        self._session = connection.connection

    def clear(self) -> None:
        """Forget what was heard so far: the rows that it told of are about to be read."""
        self._hear(0)

    def wait(self, seconds: float) -> None:
        """Wait for a notification since `clear`, at most so many seconds."""
        self._hear(seconds, stop_after=1)

    def _hear(self, seconds: float, stop_after: int | None = None) -> None:
        with connection.wrap_database_errors:
            for _ in self._session.notifies(timeout=seconds, stop_after=stop_after):
                pass
