"""Payments in the admin: to look at, not to change."""

from django.contrib import admin
from unfold.decorators import display

from payments.models import Payment
from shopmicro.admin import ReadOnlyAdmin, format_money


@admin.register(Payment)
class PaymentAdmin(ReadOnlyAdmin):
    """Payments are written by ``runpayments`` alone."""

    list_display = ("order_id", "shown_status", "amount", "reason", "reference", "created_at", "updated_at")
    search_fields = ("order_id",)
    search_help_text = "A whole order id"
    fields = (
        "order_id",
        "event_id",
        "shown_status",
        "amount",
        "reason",
        "reference",
        "created_at",
        "updated_at",
    )
    readonly_fields = fields

    @display(description="status", label={"started": "warning", "succeeded": "success", "failed": "danger"})
    def shown_status(self, payment: Payment) -> str:
        """Where the payment stands."""
        return payment.status

    @display(description="amount")
    def amount(self, payment: Payment) -> str:
        """What is charged."""
        return format_money(payment.amount_cents, payment.currency)
