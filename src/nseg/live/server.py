"""The studio's server: a page and four questions, for one person on this machine."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from nseg.errors import InputError, NsegError
from nseg.live.edits import GraphEdits
from nseg.live.questions import Stopped, kept_pairs
from nseg.live.subject import StudioSubject
from nseg.version import __version__

MAX_BODY = 1 << 20
"""Maximum number of bytes of a request."""

PATIENCE = 60.0
"""Seconds that a question may take."""

GONE = 499
"""Status of an answer that nobody waits for."""

BUNDLE = Path(__file__).parent.parent / "reports" / "bundle"

Answer = Callable[[dict[str, Any], Event], dict[str, Any]]


class Refused(Exception):  # noqa: N818 - becomes an answer, not an error of ours
    """A request that is not answered.

    Args:
        status: HTTP status.
        message: why.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class StudioServer:
    """Answers a browser's questions, one at a time, on one thread.

    Args:
        subject: what can be asked about.
        token: secret that every address must contain.
        hosts: values of the header ``Host`` that are answered; others may be pages that guess the address.
        patience: seconds that a question may take.
    """

    def __init__(self, subject: StudioSubject, token: str, hosts: set[str], patience: float = PATIENCE) -> None:
        self.subject, self.token, self.hosts, self.patience = subject, token, hosts, patience
        self.worker = ThreadPoolExecutor(1, thread_name_prefix="nseg-studio")
        answers: dict[str, Answer] = {
            "view": self._view,
            "predict": self._predict,
            "explain": self._explain,
            "change": self._change,
        }
        routes = [Route("/{token}/", self._guarded(self._page))]
        for name, answer in answers.items():
            routes.append(Route(f"/{{token}}/{name}", self._guarded(self._question(answer)), methods=["POST"]))
        self.app = Starlette(routes=routes)

    # --- answers ---------------------------------------------------------------------------------------------------------

    def _view(self, asked: dict[str, Any], stop: Event) -> dict[str, Any]:
        return self.subject.view(_output(asked))

    def _predict(self, asked: dict[str, Any], stop: Event) -> dict[str, Any]:
        says = self.subject.questions(_output(asked)).predict(_edits(asked))
        return {"predicted": says.predicted, "probabilities": list(says.probabilities)}

    def _explain(self, asked: dict[str, Any], stop: Event) -> dict[str, Any]:
        found = self.subject.questions(_output(asked)).explain(_edits(asked))
        numbers = {name: float(found[name]) for name in ("pns", "p_factual", "p_complement") if found.get(name) is not None}
        return {"kept": kept_pairs(found), **numbers}

    def _change(self, asked: dict[str, Any], stop: Event) -> dict[str, Any]:
        target = asked.get("target")
        if target is not None and (isinstance(target, bool) or not isinstance(target, int)):
            raise InputError(f"target must be the number of a class (got {target!r}).")
        found = self.subject.questions(_output(asked)).smallest_change(_edits(asked), target, stop.is_set)
        if found is None:
            return {"found": False}
        edits, says = found
        return {
            "found": True,
            "edits": edits.to_plain(),
            "predicted": says.predicted,
            "probabilities": list(says.probabilities),
        }

    # --- requests --------------------------------------------------------------------------------------------------------

    def _guarded(self, handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """A handler that only answers whoever knows the token, from this machine's own page."""

        async def guarded(request: Request) -> Response:
            try:
                self._check(request)
                response = await handle(request)
            except Refused as refused:
                response = JSONResponse({"error": refused.message}, refused.status)
            response.headers["Cache-Control"] = "no-store"
            response.headers["Referrer-Policy"] = "no-referrer"
            response.headers["X-Content-Type-Options"] = "nosniff"
            return response

        return guarded

    def _check(self, request: Request) -> None:
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if host not in self.hosts or (origin is not None and origin != f"http://{host}"):
            raise Refused(403, "The studio answers only its own page.")
        if not hmac.compare_digest(str(request.path_params["token"]).encode(), self.token.encode()):
            raise Refused(403, "The token in the address is wrong. Open the address that nseg studio printed.")

    def _question(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            asked, stop = await _body(request), Event()
            future = self.worker.submit(answer, asked, stop)
            try:
                found = await self._wait(request, future, stop)
            except Stopped:
                return JSONResponse({"error": "The question was withdrawn."}, GONE)
            except NsegError as error:
                return JSONResponse({"error": str(error)}, 422)
            except Refused:
                raise
            except Exception as error:  # a model may raise anything; the server lives
                return JSONResponse({"error": f"{type(error).__name__}: {error}"}, 500)
            return JSONResponse(found)

        return handle

    async def _wait(self, request: Request, future: Future[dict[str, Any]], stop: Event) -> dict[str, Any]:
        """The answer, unless it takes too long or the person moves on."""
        waited = asyncio.wrap_future(future)
        loop = asyncio.get_running_loop()
        end = loop.time() + self.patience
        while not waited.done():
            await asyncio.wait([waited], timeout=0.05)
            if not waited.done() and await request.is_disconnected():
                stop.set()
                future.cancel()
                raise Stopped
            if not waited.done() and loop.time() > end:
                stop.set()
                future.cancel()
                raise Refused(
                    503, f"The model has not answered within {self.patience:g} seconds. It may hang; restart the studio."
                )
        if waited.cancelled():
            raise Stopped
        return waited.result()

    async def _page(self, request: Request) -> Response:
        script, style = ((BUNDLE / name).read_text(encoding="utf-8") for name in ("studio.js", "page.css"))
        policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; connect-src 'self'"
        html = (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>nseg studio</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
            f'<meta name="generator" content="nseg {__version__}"><style>{style}</style></head>'
            f'<body><div id="page"></div><script>{script}</script></body></html>'
        )
        return HTMLResponse(
            html, headers={"Content-Security-Policy": f"{policy}; img-src data:; base-uri 'none'; form-action 'none'"}
        )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object of a request."""
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > MAX_BODY:
            raise Refused(413, f"A request must have at most {MAX_BODY} bytes.")
    try:
        asked = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        raise Refused(400, "A request must be a JSON object.")
    return asked


def _output(asked: dict[str, Any]) -> int:
    output = asked.get("output", 0)
    if isinstance(output, bool) or not isinstance(output, int):
        raise InputError(f"output must be a whole number (got {output!r}).")
    return output


def _edits(asked: dict[str, Any]) -> GraphEdits:
    return GraphEdits.from_plain(asked.get("edits", {}))
