"""RFC 9457: whatever goes wrong under /v1/ is answered as ``application/problem+json``."""

import json
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, NoReturn
from urllib.parse import quote

import structlog
from django.core.exceptions import SuspiciousOperation
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, HttpResponseNotAllowed
from django.http.response import HttpResponseBase
from ninja.errors import HttpError, ValidationError

from shopmicro.messaging.event import Malformed

log = structlog.get_logger(__name__)

CONTENT_TYPE = "application/problem+json"
MAX_ERRORS = 20
MAX_NAME = 100

SCHEMA: dict[str, Any] = {
    "title": "Problem",
    "description": "RFC 9457. `errors` names each refused member or parameter.",
    "type": "object",
    "required": ["type", "title", "status"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["detail"],
                "properties": {
                    "detail": {"type": "string"},
                    "pointer": {"type": "string", "description": "A JSON pointer into the body."},
                    "parameter": {"type": "string", "description": "A parameter of the query or path."},
                },
            },
        },
    },
}

GetResponse = Callable[[HttpRequest], HttpResponseBase]


def problem(status: int, detail: str = "", **members: Any) -> HttpResponse:
    """Make the answer that tells of a problem; its title is the status's own."""
    body: dict[str, Any] = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    if detail:
        body["detail"] = detail
    return HttpResponse(json.dumps(body | members), status=status, content_type=CONTENT_TYPE)


def problem_middleware(get_response: GetResponse) -> GetResponse:
    """Answer every error under /v1/ as a problem, HEAD as GET without a body, OPTIONS with Allow.

    Elsewhere a NUL in a query or a cookie, which PostgreSQL can't hold, is refused before Django's
    admin or sessions ask for it.
    """

    def answer(request: HttpRequest) -> HttpResponseBase:
        if not request.path_info.startswith("/v1/"):
            return HttpResponseBadRequest("NUL.") if _holds_nul(request) else get_response(request)
        asked = request.method
        if asked == "HEAD":
            request.method = "GET"
        response = _as_problem(get_response(request))
        if isinstance(response, HttpResponseNotAllowed):
            response["Allow"] = ", ".join(_allowed(response["Allow"]))
        if asked == "OPTIONS" and isinstance(response, HttpResponseNotAllowed):
            return HttpResponse(status=204, headers={"Allow": response["Allow"]})
        return _without_body(response) if asked == "HEAD" else response

    return answer


def _holds_nul(request: HttpRequest) -> bool:
    in_query = "%00" in request.META.get("QUERY_STRING", "")
    return in_query or any("\0" in value for value in request.COOKIES.values())


def on_validation_error(request: HttpRequest, error: ValidationError) -> HttpResponse:
    """Answer 422, naming each member or parameter that was refused."""
    errors = [_refusal(one["loc"], one["msg"]) for one in error.errors[:MAX_ERRORS]]
    first = errors[0].get("pointer") or errors[0]["parameter"]
    more = f" (and {len(error.errors) - 1} more)" if len(error.errors) > 1 else ""
    return problem(422, f"{first}: {errors[0]['detail']}{more}", errors=errors)


def on_http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
    """Answer the status of an error that a view raised, 400 with its place for broken JSON."""
    cause = error.__cause__
    return problem(error.status_code, str(cause if isinstance(cause, Malformed) else error))


def on_database_error(request: HttpRequest, error: DatabaseError) -> HttpResponse:
    """Answer 503 when the database is away, busy or being restarted; the client may try again."""
    log.error("the database failed a request", path=request.path, exc_info=error)
    response = problem(503, "The database does not answer as it should. Try again later.")
    response["Retry-After"] = "5"
    return response


def on_suspicious(request: HttpRequest, error: SuspiciousOperation) -> HttpResponse:
    """Answer 400 to what Django won't read, such as a thousand parameters."""
    return problem(400, "The request can't be read.")


def leave_to_django(request: HttpRequest, error: Exception) -> NoReturn:
    """Raise it again, so that Django logs it and answers 400 or 500, with DEBUG as without."""
    raise error


def _as_problem(response: HttpResponseBase) -> HttpResponseBase:
    if response.status_code < 400 or response.get("Content-Type") == CONTENT_TYPE:
        return response
    told = problem(response.status_code)
    if isinstance(response, HttpResponse):
        response.content = told.content
        response["Content-Type"] = CONTENT_TYPE
        response["Content-Length"] = str(len(told.content))
    return response


def _allowed(allow: str) -> Iterable[str]:
    methods = {method.strip() for method in allow.split(",")} | {"OPTIONS"}
    return sorted(methods | {"HEAD"} if "GET" in methods else methods)


def _without_body(response: HttpResponseBase) -> HttpResponseBase:
    if isinstance(response, HttpResponse):
        length = len(response.content)
        response.content = b""
        response["Content-Length"] = str(length)
    return response


def _refusal(place: tuple[str | int, ...], sentence: str) -> Mapping[str, str]:
    source, *path = place
    if source == "body":
        pointer = "".join(f"/{_pointer_part(part)}" for part in path[1:])
        return {"pointer": f"#{pointer}", "detail": sentence}
    return {"parameter": str(path[0])[:MAX_NAME], "detail": sentence}


def _pointer_part(part: str | int) -> str:
    name = str(part)[:MAX_NAME].replace("~", "~0").replace("/", "~1")
    return quote(name, safe="~", errors="replace")
