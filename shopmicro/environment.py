"""The process's environment, read so that a mistake in it is one line that names the variable."""

from typing import Any

import environ
from django.core.exceptions import ImproperlyConfigured

POSTGRES = ("postgres://", "postgresql://")
TRUE = frozenset({"true", "on", "yes", "y", "ok", "1"})
FALSE = frozenset({"false", "off", "no", "n", "0"})
LARGEST = 10**13

_WANTED = {
    bool: "neither true nor false",
    int: "not a whole number",
    float: "not a number",
    dict: "not a list such as name=value,name=value",
}


_database: Any = environ.Env.db_url_config
_mail: Any = environ.Env.email_url_config
_parse: Any = environ.Env.parse_value


class Environment(environ.FileAwareEnv):
    """Raises ImproperlyConfigured with one line, in which no value stands: it may be a secret.

    A blank variable is as if it were not there; blanks round a value are no part of it.
    """

    def get_value(
        self, var: str, cast: Any = None, default: Any = environ.Env.NOTSET, parse_default: bool = False
    ) -> Any:
        """Read a variable; without a default it is needed."""
        text = self._text(var)
        if not text and default is environ.Env.NOTSET:
            raise ImproperlyConfigured(f"{var} is not set, and there is no default")
        try:
            return self.parse_value(text, cast) if text else default
        except ValueError:
            raise ImproperlyConfigured(f"{var} is {_WANTED.get(cast, 'not understood')}") from None

    @classmethod
    def parse_value(cls, value: str, cast: Any) -> Any:
        """Read a text as a value of a type; ValueError if it is none."""
        if cast is bool:
            return _boolean(value)
        if cast is int:
            return _integer(value)
        if cast is list:
            return [entry.strip() for entry in value.split(",") if entry.strip()]
        return float(value) if cast is float else _parse(value, cast)

    def postgres_url(self, var: str) -> dict[str, Any]:
        """Read the address of a PostgreSQL database as Django wants it."""
        address = str(self.str(var))
        try:
            config: dict[str, Any] = _database(address) if address.startswith(POSTGRES) else {}
        except ValueError:
            config = {}
        if not config.get("NAME"):
            raise ImproperlyConfigured(
                f"{var} is not the address of a PostgreSQL database: postgres://user:password@host:5432/name"
            )
        return config

    def mail_url(self, var: str, default: str) -> dict[str, Any]:
        """Read the address of a mail server as Django's settings of it."""
        try:
            return dict(_mail(self.str(var, default=default)))
        except (ImproperlyConfigured, ValueError):
            raise ImproperlyConfigured(
                f"{var} is not the address of a mail server: smtp+tls://user:password@host:587"
            ) from None

    def _text(self, var: str) -> str:
        try:
            return str(self.ENVIRON.get(var, "")).strip()
        except (OSError, UnicodeDecodeError):
            raise ImproperlyConfigured(f"{var}_FILE names a file that cannot be read") from None


def _boolean(text: str) -> bool:
    word = text.lower()
    if word not in TRUE | FALSE:
        raise ValueError
    return word in TRUE


def _integer(text: str) -> int:
    number = int(text)
    if abs(number) > LARGEST:
        raise ValueError
    return number
