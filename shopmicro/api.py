"""The shop's HTTP API: /v1/, its documentation and what holds for each of its operations."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, InternalError, OperationalError
from django.http import HttpRequest, HttpResponse, UnreadablePostError
from django.http.response import HttpResponseBase
from django.views.decorators.http import require_safe
from ninja import NinjaAPI, Swagger
from ninja.errors import HttpError, ValidationError
from ninja.openapi.schema import OpenAPISchema
from ninja.parser import Parser

from shopmicro import problems
from shopmicro.messaging.event import parse_json

ROUTERS = {"/products": "catalog.api.router", "/orders": "orders.api.router"}
HANDLERS: dict[type[Exception], Callable[..., HttpResponse]] = {
    ValidationError: problems.on_validation_error,
    HttpError: problems.on_http_error,
    OperationalError: problems.on_database_error,
    InterfaceError: problems.on_database_error,
    InternalError: problems.on_database_error,
    SuspiciousOperation: problems.on_suspicious,
    Exception: problems.leave_to_django,
}
WITH_A_BODY = frozenset({"POST", "PUT", "PATCH"})

Run = Callable[..., HttpResponseBase]


class StrictParser(Parser):
    """Reads a body as strictly as a record's value is read."""

    def parse_body(self, request: HttpRequest) -> Any:
        """Parse the body; ninja turns Malformed into a 400."""
        return parse_json(request.body)


class ShopAPI(NinjaAPI):
    """The API, with its problems documented beside each operation's own answers."""

    def get_openapi_schema(
        self, *, path_prefix: str | None = None, path_params: dict[str, Any] | None = None
    ) -> OpenAPISchema:
        """Add the problem answers to what ninja says of the operations."""
        document = super().get_openapi_schema(path_prefix=path_prefix, path_params=path_params)
        document["components"]["schemas"]["Problem"] = problems.SCHEMA
        for path, methods in document["paths"].items():
            for operation in methods.values():
                operation["responses"].update(_problem_answers(path, operation))
        return document


def json_body(run: Run) -> Run:
    """Refuse a body that is too large, of another type than JSON, or not there."""

    @wraps(run)
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        refused = _refused_body(request) if request.method in WITH_A_BODY else None
        return run(request, *args, **kwargs) if refused is None else refused

    return checked


def _refused_body(request: HttpRequest) -> HttpResponseBase | None:
    if "HTTP_TRANSFER_ENCODING" in request.META:
        return problems.problem(411, "Send the body with a Content-Length.")
    if request.content_type != "application/json":
        return problems.problem(415, "Send the body as application/json.")
    try:
        return None if request.body else problems.problem(400, "The body is empty.")
    except RequestDataTooBig:
        return problems.problem(413, "The body is over 1 MiB.")
    except UnreadablePostError:
        return problems.problem(400, "The body ended too soon.")


def _problem_answers(path: str, operation: dict[str, Any]) -> dict[int, Any]:
    answers = {422: "A member or parameter is refused", 503: "Try again later"}
    if "{" in path:
        answers = {404: "There is no such thing", 503: "Try again later"}
    if "requestBody" in operation:
        answers |= {400: "The body is no JSON", 413: "The body is over 1 MiB", 415: "The body is not JSON"}
    content = {problems.CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": text, "content": content} for status, text in sorted(answers.items())}


def make_api() -> NinjaAPI:
    """Put the API together. Routers are named, not imported: this module knows no app."""
    api = ShopAPI(
        title="shopmicro",
        version="1",
        description="Place orders and see what became of them. Every error is an RFC 9457 problem.",
        docs=Swagger(settings={"validatorUrl": "none"}),
        docs_decorator=require_safe,
        parser=StrictParser(),
    )
    for error, handler in HANDLERS.items():
        api.add_exception_handler(error, handler)
    api.add_decorator(json_body, mode="view")
    for prefix, router in ROUTERS.items():
        api.add_router(prefix, router)
    return api


api = make_api()
