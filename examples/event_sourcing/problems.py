"""Errors as RFC 9457 has them: ``application/problem+json``, with a code for programs and a sentence for people."""

from __future__ import annotations

import logging
from typing import Any

import cassandra
from cassandra.cluster import NoHostAvailable
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

import rscylla
from rscylla.eventsourcing import CommandIDReused, SubjectForgotten, VersionConflict

from .domain.rules import RuleBroken
from .tables import is_outage

__all__ = ["RESPONSES", "Problem", "ProblemDetails", "install"]

log = logging.getLogger("shop.web")


class ProblemDetails(BaseModel):
    """What went wrong (RFC 9457)."""

    type: str = Field(description="The kind of problem, relative to this service.", examples=["/problems/rule-broken"])
    title: str
    status: int
    detail: str = Field(description="What happened and what to do, for people.")
    code: str = Field(default="", description="The rule that was broken, for programs.", examples=["not_paid"])
    errors: list[dict[str, Any]] = Field(default=[], description="The fields of the request that are wrong.")


class Problem(Exception):
    """A request that cannot be answered as asked."""

    def __init__(
        self,
        status: int,
        kind: str,
        title: str,
        detail: str,
        *,
        code: str = "",
        errors: list[dict[str, Any]] | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.details = ProblemDetails(
            type=f"/problems/{kind}", title=title, status=status, detail=detail, code=code, errors=errors or []
        )
        self.retry_after_s = retry_after_s

    def answer(self) -> JSONResponse:
        headers = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        content = self.details.model_dump(exclude_defaults=True)
        return JSONResponse(content, self.details.status, headers, "application/problem+json")


RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {
        "description": description,
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}},
    }
    for status, description in {
        404: "There is no such order or customer.",
        409: "The state of the aggregate forbids it, or somebody else changed it at the same time.",
        422: "The request is malformed, or its Idempotency-Key is of another command.",
        503: "The database does not answer. Send the same command with the same Idempotency-Key again.",
    }.items()
}
"""Problems of the API, for OpenAPI."""


def install(app: FastAPI) -> None:
    """Answer all errors of *app* as problems."""

    def answer(make: Any) -> Any:
        def handler(request: Request, error: Exception) -> JSONResponse:
            problem: Problem = make(error)
            return problem.answer()

        return handler

    for kind, make in (
        (Problem, lambda error: error),
        (RuleBroken, _of_rule),
        (VersionConflict, _of_conflict),
        (CommandIDReused, _of_key),
        (SubjectForgotten, lambda error: Problem(409, "forgotten", "The customer was forgotten", str(error))),
        (RequestValidationError, _of_validation),
        (HTTPException, _of_http),
        # Named one by one: what only the last of these knows is logged by the web server, too.
        (rscylla.RscyllaError, _of_error),
        (cassandra.DriverException, _of_error),
        (NoHostAvailable, _of_error),
        (Exception, _of_error),
    ):
        app.add_exception_handler(kind, answer(make))
    # Known to OpenAPI though no endpoint returns it.
    schema = app.openapi

    def openapi() -> dict[str, Any]:
        found = schema()
        found["components"]["schemas"]["ProblemDetails"] = ProblemDetails.model_json_schema()
        return found

    app.openapi = openapi  # type: ignore[method-assign]


def _of_rule(error: RuleBroken) -> Problem:
    if error.code == "not_found":
        return Problem(404, "not-found", "Not found", str(error))
    return Problem(409, "rule-broken", "A rule forbids it", str(error), code=error.code)


def _of_conflict(error: VersionConflict) -> Problem:
    return Problem(409, "conflict", "Somebody else changed it", str(error))


def _of_key(error: CommandIDReused) -> Problem:
    detail = "this Idempotency-Key is of another command; use a new one for each"
    return Problem(422, "key-reused", "The key was used before", detail)


def _of_validation(error: RequestValidationError) -> Problem:
    # What was sent is left out: it may be personal.
    errors = [{"at": [str(part) for part in one["loc"]], "what": one["msg"]} for one in error.errors()]
    return Problem(422, "invalid", "The request is malformed", "see errors", errors=errors)


def _of_http(error: HTTPException) -> Problem:
    return Problem(error.status_code, "http", str(error.detail), str(error.detail))


def _of_error(error: Exception) -> Problem:
    may_pass = is_outage(error) or (isinstance(error, rscylla.RscyllaError) and error.resumable)
    if may_pass:
        log.warning("the database does not answer: %s", error)
        detail = "the database does not answer; send the same request with the same Idempotency-Key again"
        return Problem(503, "unavailable", "The database does not answer", detail, retry_after_s=2)
    log.error("a request failed", exc_info=error)
    return Problem(500, "failed", "This service failed", "the log of the service says why")
