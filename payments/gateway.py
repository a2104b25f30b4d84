"""The port to whoever moves the money, and the gateway that is built in."""

from dataclasses import dataclass
from typing import Protocol

from django.conf import settings


class GatewayUnavailable(Exception):
    """The gateway gave no answer: whether money moved is unknown. Ask again with the same key.

    Its text is kept with the event that is set aside, so it holds no secret and no card.
    """


@dataclass(frozen=True, slots=True)
class Charge:
    """The gateway's final answer: approved, or declined and why; ``reference`` is its own name for it."""

    approved: bool
    reason: str = ""
    reference: str = ""


class Gateway(Protocol):
    """Moves money. Called from several threads at once, never inside a database transaction."""

    def charge(self, *, idempotency_key: str, order_id: str, amount_cents: int, currency: str) -> Charge:
        """Charge an order once, however often it is asked with the same key.

        Raises GatewayUnavailable where the outcome is unknown; a decline is an answer.
        """


@dataclass(frozen=True, slots=True)
class LimitGateway:
    """Approves up to ``limit_cents`` and declines what is over it; moves no money."""

    limit_cents: int

    def charge(self, *, idempotency_key: str, order_id: str, amount_cents: int, currency: str) -> Charge:
        """Decide by the amount alone, so that the same question has the same answer."""
        if amount_cents > self.limit_cents:
            return Charge(approved=False, reason="amount exceeds limit")
        return Charge(approved=True, reference=f"limit:{idempotency_key}")


def configured_gateway() -> Gateway:
    """Make the gateway that the settings name."""
    return LimitGateway(settings.PAYMENT_LIMIT_CENTS)
