"""The catalogue in the admin."""

from typing import Any

from django.contrib import admin
from django.db.models import Field, Model
from django.db.models.functions import Now
from django.forms import Form
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from catalog.models import Product


@admin.register(Product)
class ProductAdmin(ModelAdmin):
    """Products are added and changed here, never deleted: orders refer to them by id."""

    list_display = ("name", "price_cents", "stock", "updated_at")
    search_fields = ("name",)
    ordering = ("name",)
    fields = ("id", "name", "description", "price_cents", "stock", "created_at", "updated_at")
    readonly_fields = ("id", "created_at", "updated_at")

    def has_delete_permission(self, request: HttpRequest, obj: Product | None = None) -> bool:
        """Keep every product."""
        return False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Find products by the search box; a filter typed into the address may hold what no column can."""
        return False

    def formfield_for_dbfield(self, db_field: "Field[Any, Any]", request: HttpRequest, **kwargs: Any) -> Any:
        """Let the form remember what it showed, which is what a change is measured against."""
        return super().formfield_for_dbfield(db_field, request, show_hidden_initial=True, **kwargs)

    def save_model(self, request: HttpRequest, obj: Model, form: Form, change: bool) -> None:
        """Write only what was changed in the form: stock may have moved since it was opened."""
        if not change:
            obj.save(force_insert=True)
        elif form.changed_data and isinstance(obj, Product):
            obj.updated_at = Now()
            obj.save(update_fields=[*form.changed_data, "updated_at"])
