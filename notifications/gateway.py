"""Mails: what one says, and how it is sent."""

import re
import smtplib
from dataclasses import dataclass
from email.utils import parseaddr

import structlog
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage, get_connection
from django.core.mail.backends.base import BaseEmailBackend
from django.core.validators import validate_email

log = structlog.get_logger(__name__)

_PERMANENT = 500
_enhanced_code = re.compile(rb"[245]\.\d{1,3}\.\d{1,3}").match


class MailError(Exception):
    """A mail was not sent. Its text never holds the address: it is logged, and kept with the event."""


class MailUnavailable(MailError):
    """The mail server could not be asked, or says to come back later. Whether the mail left is unknown."""


class MailRefused(MailError):
    """The mail server will not take this mail: a person has to put the address or the server right."""


@dataclass(frozen=True, slots=True)
class Mail:
    """A plain text mail. ``reference`` names it: sent again, it has the same Message-ID."""

    recipient: str
    subject: str
    body: str
    reference: str


def write_confirmed(*, order_id: str, total_cents: int, currency: str, recipient: str) -> Mail:
    """Tell that an order is paid and confirmed."""
    body = (
        "Your order is confirmed: the payment succeeded.\n\n"
        f"Order: {order_id}\n"
        f"Total: {_money(total_cents, currency)}\n"
    )
    return Mail(recipient, f"Your order {order_id} is confirmed", body, f"{order_id}.confirmed")


def write_cancelled(*, order_id: str, total_cents: int, currency: str, reason: str, recipient: str) -> Mail:
    """Tell that an order is cancelled and why; ``reason`` may be any text."""
    body = (
        "Your order is cancelled: the payment failed.\n\n"
        f"Order: {order_id}\n"
        f"Total: {_money(total_cents, currency)}\n"
        f"Reason: {_one_line(reason)}\n"
    )
    return Mail(recipient, f"Your order {order_id} is cancelled", body, f"{order_id}.cancelled")


def send(mail: Mail) -> None:
    """Send one mail over a connection of its own, so that any number of threads may send at once.

    Raises MailUnavailable and MailRefused. Once the server has taken the mail nothing is raised:
    a fault in parting from it must not make the mail be sent again.
    """
    message = _message(mail)
    connection = get_connection()
    try:
        connection.open()
        connection.send_messages([message])
    except (smtplib.SMTPException, OSError) as error:
        raise _error_of(error) from None
    finally:
        _close(connection)


def _message(mail: Mail) -> EmailMessage:
    try:
        validate_email(mail.recipient)
    except ValidationError:
        raise MailRefused("the order's address is no mail address") from None
    sender = settings.DEFAULT_FROM_EMAIL
    domain = parseaddr(sender)[1].rpartition("@")[2] or "localhost"
    headers = {"Message-ID": f"<{mail.reference}@{domain}>", "Auto-Submitted": "auto-generated"}
    return EmailMessage(mail.subject, mail.body, sender, [mail.recipient], headers=headers)


def _close(connection: BaseEmailBackend) -> None:
    try:
        connection.close()
    except (smtplib.SMTPException, OSError) as error:
        log.info("the mail server was not parted from well", error=_said(error))


def _error_of(error: OSError) -> MailError:
    said = _said(error)
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        codes = [code for code, _ in error.recipients.values()]
        return MailRefused(said) if min(codes) >= _PERMANENT else MailUnavailable(said)
    if isinstance(error, smtplib.SMTPDataError) and error.smtp_code >= _PERMANENT:
        return MailRefused(said)
    return MailUnavailable(said)


def _said(error: OSError) -> str:
    """Name an error by its codes alone: a server's text often repeats the address."""
    answers: list[tuple[int, bytes | str]] = []
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        answers = list(error.recipients.values())
    elif isinstance(error, smtplib.SMTPResponseException):
        answers = [(error.smtp_code, error.smtp_error)]
    elif not isinstance(error, smtplib.SMTPException) and error.strerror:
        return f"{type(error).__name__}: {error.strerror}"
    return " ".join([type(error).__name__, *(_codes(code, text) for code, text in answers)])


def _codes(code: int, text: bytes | str) -> str:
    found = _enhanced_code(text.encode(errors="replace") if isinstance(text, str) else text)
    return f"{code} {found[0].decode()}" if found else str(code)


def _money(cents: int, currency: str) -> str:
    return f"{cents // 100}.{cents % 100:02} {currency}"


def _one_line(text: str) -> str:
    """Keep a text of others from making lines of its own in ours."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
