"""Two transactions, statement by statement, in every order that the database's locks permit."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import psycopg
from django.db import connection

Work = Callable[[Callable[[], None]], None]
Rewrite = Callable[[str], str]

_LIMIT_SECONDS = 30
_BLOCKED = "SELECT cardinality(pg_blocking_pids(%s)) > 0"


def as_it_is(sql: str) -> str:
    """Leave a statement as the code wrote it."""
    return sql


class Session(threading.Thread):
    """One transaction on a database session of its own, which waits for leave before each statement.

    ``work`` is given a function that it calls before its commit, as the statements do by themselves.
    """

    def __init__(self, name: str, work: Work, rewrite: Rewrite) -> None:
        super().__init__(name=name, daemon=True)
        self.error: Exception | None = None
        self.pid = 0
        self.trace: list[str] = []
        self.is_waiting = threading.Event()
        self.is_over = threading.Event()
        self._leave = threading.Event()
        self._work = work
        self._rewrite = rewrite

    def run(self) -> None:
        try:
            connection.ensure_connection()
            self.pid = connection.connection.info.backend_pid
            with connection.execute_wrapper(self._execute):
                self._work(lambda: self._wait_for_leave("COMMIT"))
        except Exception as error:  # noqa: BLE001 - told to the test
            self.error = error
        finally:
            connection.close()
            self.is_over.set()
            self.is_waiting.set()

    def advance(self, observer: psycopg.Connection) -> bool:
        """Give leave for one statement; return when it is done, or say that it waits for the other's lock."""
        self.is_waiting.clear()
        self._leave.set()
        while not self.is_waiting.wait(0.002):
            if observer.execute(_BLOCKED, (self.pid,)).fetchone() == (True,):
                return True
        return False

    def _execute(self, execute, sql, params, many, context):  # type: ignore[no-untyped-def]
        self._wait_for_leave(" ".join(sql.split()))
        return execute(self._rewrite(sql), params, many, context)

    def _wait_for_leave(self, statement: str) -> None:
        self.trace.append(statement)
        self.is_waiting.set()
        assert self._leave.wait(_LIMIT_SECONDS), f"{self.name} was forgotten before {statement}"
        self._leave.clear()


@dataclass
class Schedule:
    """One order of statements: whose turn it was each time, what they did, and what waited for a lock."""

    turns: list[str] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)


def every_schedule(
    works: dict[str, Work],
    observer: psycopg.Connection,
    begin: Callable[[], None],
    rewrite: Rewrite = as_it_is,
) -> Iterator[Schedule]:
    """Run the works in each order of their statements that locks permit; yields after each run.

    ``begin`` puts the database where each run starts from. ``rewrite`` may change the statements.
    """
    prefix: list[int] = []
    while True:
        begin()
        sessions = [Session(name, work, rewrite) for name, work in works.items()]
        schedule, options = Schedule(), list[int]()
        _run(sessions, prefix, observer, schedule, options)
        yield schedule
        while prefix and prefix[-1] + 1 >= options[len(prefix) - 1]:
            prefix.pop()
        if not prefix:
            return
        prefix[-1] += 1


def _run(
    sessions: list[Session],
    prefix: list[int],
    observer: psycopg.Connection,
    schedule: Schedule,
    options: list[int],
) -> None:
    """Take the choices of the prefix, then the first each time; extends the prefix to the whole run."""
    for session in sessions:
        session.start()
        assert session.is_waiting.wait(_LIMIT_SECONDS)
    while running := [session for session in sessions if not session.is_over.is_set()]:
        ready = [session for session in running if session.is_waiting.is_set()]
        if not ready:
            running[0].is_waiting.wait(0.005)
            continue
        if len(options) == len(prefix):
            prefix.append(0)
        choice = prefix[len(options)]
        options.append(len(ready))
        chosen = ready[choice]
        schedule.turns.append(chosen.name)
        schedule.statements.append(f"{chosen.name}: {chosen.trace[-1]}")
        if chosen.advance(observer):
            schedule.waits.append(schedule.statements[-1])
    for session in sessions:
        session.join(_LIMIT_SECONDS)
    schedule.errors = [session.error for session in sessions if session.error]
