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
        self._hears(0)

    def wait(self, seconds: float) -> bool:
        """Wait for a notification since `clear`, at most so many seconds; gives whether one came.

        Nothing ends the wait but these: whoever must see a stop waits in slices.
        """
        return self._hears(seconds, stop_after=1)

    def _hears(self, seconds: float, stop_after: int | None = None) -> bool:
        with connection.wrap_database_errors:
            return bool(list(self._session.notifies(timeout=seconds, stop_after=stop_after)))
