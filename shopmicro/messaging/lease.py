"""Who may publish a shard of the outbox: a session lock in PostgreSQL, gone with its session."""

from collections.abc import Callable
from time import monotonic
from typing import Any

import structlog
from django.db import connection

log = structlog.get_logger(__name__)

_SHARD_LOCKS = 0x53484152
_COUNT_LOCKS = 0x434F554E

_OTHER_COUNT = """
SELECT objid::bigint FROM pg_locks
WHERE locktype = 'advisory' AND classid = %s AND objsubid = 2 AND objid <> %s AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
LIMIT 1
"""


class ShardCountDiffers(Exception):
    """Another relay runs with another number of shards: together they would reorder events."""


class ShardLease:
    """The right to publish one shard, held by a lock of the current database session.

    ``idle_seconds`` is how long the server waits for a holder that has gone silent (frozen, or
    cut off) before it ends its session, and the lock with it. A holder that waits calls `keep`.
    """

    def __init__(
        self, shard: int, shards: int, *, idle_seconds: int = 30, clock: Callable[[], float] = monotonic
    ) -> None:
        if not 0 <= shard < shards:
            raise ValueError(f"there is no shard {shard} of {shards}")
        self.shard = shard
        self.shards = shards
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._speak_at = 0.0
        self._session: Any = None
        self._standing_by = False
        self.held = False

    def hold(self) -> bool:
        """Take the lease or make sure of it; gives False while another relay holds it.

        Raises ShardCountDiffers if a relay with another number of shards is alive.
        """
        connection.ensure_connection()
        if self._session is not connection.connection:
            self._open_session()
        if not self.held:
            self.held = self._try_lock()
            self._say()
        return self.held

    def keep(self) -> None:
        """Let the server hear of the session, at most three times in ``idle_seconds``.

        Raises DatabaseError if the session is gone.
        """
        if self._clock() < self._speak_at:
            return
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        self._speak_at = self._clock() + self._idle_seconds / 3

    def _open_session(self) -> None:
        self.held = False
        with connection.cursor() as cursor:
            cursor.execute(f"SET idle_session_timeout = '{self._idle_seconds}s'")
            cursor.execute("SELECT pg_advisory_lock_shared(%s, %s)", (_COUNT_LOCKS, self.shards))
            cursor.execute(_OTHER_COUNT, (_COUNT_LOCKS, self.shards))
            other = cursor.fetchone()
            if other is not None:
                connection.close()
                raise ShardCountDiffers(
                    f"a relay with OUTBOX_SHARDS={other[0]} is running and this one has {self.shards}:"
                    " stop all relays, then start them with one count"
                )
        self._session = connection.connection
        self._speak_at = self._clock() + self._idle_seconds / 3

    def _try_lock(self) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", (_SHARD_LOCKS, self.shard))
            return bool(cursor.fetchone()[0])

    def _say(self) -> None:
        if self.held:
            log.info("relay leads", shard=self.shard, shards=self.shards)
        elif not self._standing_by:
            log.info("relay stands by: another one leads", shard=self.shard, shards=self.shards)
        self._standing_by = not self.held
