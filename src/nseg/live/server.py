"""The studio's server: a page and its questions, for one person on this machine."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from nseg.errors import InputError, NsegError
from nseg.live.edits import GraphEdits
from nseg.live.explanation_view import explanation_view
from nseg.live.session import page, replay
from nseg.live.subject import StudioSubject
from nseg.live.work import Stopped, Work

MAX_BODY = 1 << 20
"""Maximum number of bytes of a request."""

PATIENCE = 60.0
"""Seconds that a question may take."""

GONE = 499
"""Status of an answer that nobody waits for."""

Answer = Callable[[dict[str, Any], Work], dict[str, Any]]


class RefusedError(Exception):
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
        self.working: dict[str, Work] = {}
        answers: dict[str, Answer] = {
            "view": self._view,
            "predict": self._predict,
            "explain": self._explain,
            "change": self._change,
            "features": self._features,
            "replay": self._replay,
            "save": self._save,
        }
        routes = [Route("/{token}/", self._guarded(self._page))]
        routes.append(Route("/{token}/progress", self._guarded(self._progress), methods=["POST"]))
        for name, answer in answers.items():
            routes.append(Route(f"/{{token}}/{name}", self._guarded(self._question(answer)), methods=["POST"]))
        self.app = Starlette(routes=routes)

    # --- answers ---------------------------------------------------------------------------------------------------------

    def _view(self, asked: dict[str, Any], work: Work) -> dict[str, Any]:
        return self.subject.view(_whole(asked, "output"))

    def _predict(self, asked: dict[str, Any], work: Work) -> dict[str, Any]:
        says = self.subject.questions(_whole(asked, "output")).predict(_edits(asked))
        return {"predicted": says.predicted, "probabilities": list(says.probabilities)}

    def _explain(self, asked: dict[str, Any], work: Work) -> dict[str, Any]:
        return explanation_view(self.subject.questions(_whole(asked, "output")).explain(_edits(asked), work))

    def _change(self, asked: dict[str, Any], work: Work) -> dict[str, Any]:
        target = None if asked.get("target") is None else _whole(asked, "target")
        questions = self.subject.questions(_whole(asked, "output"))
        given, features = _edits(asked), asked.get("features") is True
        new = self.subject.new_edges(questions.number, given) if asked.get("additions") is True else []
        edits, words = questions.smallest_change(given, target, features, new, work)
        if edits is None:
            return {"found": False, "words": words}
        says = questions.predict(edits)
        numbers = {"predicted": says.predicted, "probabilities": list(says.probabilities)}
        return {"found": True, "words": words, "edits": edits.to_plain(), **numbers}

    def _features(self, asked: dict[str, Any], work: Work) -> dict[str, Any]:
        questions = self.subject.questions(_whole(asked, "output"))
        return {"features": questions.features(_whole(asked, "node"), _edits(asked))}

    def _replay(self, asked: dict[str, Any], work: Work) -> dict[str, Any]:
        return replay(self.subject, asked.get("session"), work)

    def _save(self, asked: dict[str, Any], work: Work) -> dict[str, Any]:
        session = replay(self.subject, asked.get("session"), work)
        return {"html": page({"view": self.subject.view(session["output"]), "session": session})[0]}

    # --- requests --------------------------------------------------------------------------------------------------------

    def _guarded(self, handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """A handler that only answers whoever knows the token, from this machine's own page."""

        async def guarded(request: Request) -> Response:
            try:
                self._check(request)
                response = await handle(request)
            except RefusedError as refused:
                response = JSONResponse({"error": refused.message}, refused.status)
            response.headers["Cache-Control"] = "no-store"
            response.headers["Referrer-Policy"] = "no-referrer"
            response.headers["X-Content-Type-Options"] = "nosniff"
            return response

        return guarded

    def _check(self, request: Request) -> None:
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if host not in self.hosts or (origin is not None and origin != f"http://{host}"):
            raise RefusedError(403, "The studio answers only its own page.")
        if not hmac.compare_digest(str(request.path_params["token"]).encode(), self.token.encode()):
            raise RefusedError(403, "The token in the address is wrong. Open the address that nseg studio printed.")

    def _question(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            asked, work = await _body(request), Work()
            ticket = str(asked.get("ticket", ""))[:64]
            if ticket:
                self.working[ticket] = work
            future = self.worker.submit(answer, asked, work)
            try:
                found = await self._wait(request, future, work)
            except Stopped:
                return JSONResponse({"error": "The question was withdrawn."}, GONE)
            except NsegError as error:
                return JSONResponse({"error": str(error)}, 422)
            except RefusedError:
                raise
            except Exception as error:  # a model may raise anything; the server lives
                return JSONResponse({"error": f"{type(error).__name__}: {error}"}, 500)
            finally:
                self.working.pop(ticket, None)
            return JSONResponse(found)

        return handle

    async def _progress(self, request: Request) -> Response:
        """How far an answer is that somebody waits for."""
        work = self.working.get(str((await _body(request)).get("ticket", "")))
        return JSONResponse({} if work is None else {"share": work.share, "asked": work.asked})

    async def _wait(self, request: Request, future: Future[dict[str, Any]], work: Work) -> dict[str, Any]:
        """The answer, unless it takes too long or the person moves on."""
        waited = asyncio.wrap_future(future)
        waited.add_done_callback(lambda done: done.cancelled() or done.exception())  # seen, even if nobody waits
        loop = asyncio.get_running_loop()
        end = loop.time() + self.patience
        while not waited.done():
            await asyncio.wait([waited], timeout=0.05)
            if not waited.done() and await request.is_disconnected():
                work.stop.set()
                future.cancel()
                raise Stopped
            if not waited.done() and loop.time() > end:
                work.stop.set()
                future.cancel()
                raise RefusedError(
                    503, f"The model has not answered within {self.patience:g} seconds. It may hang; restart the studio."
                )
        if waited.cancelled():
            raise Stopped
        return waited.result()

    async def _page(self, request: Request) -> Response:
        html, policy = page()
        return HTMLResponse(html, headers={"Content-Security-Policy": policy})


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object of a request."""
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > MAX_BODY:
            raise RefusedError(413, f"A request must have at most {MAX_BODY} bytes.")
    try:
        asked = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        raise RefusedError(400, "A request must be a JSON object.")
    return asked


def _whole(asked: dict[str, Any], name: str) -> int:
    value = asked.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{name} must be a whole number (got {value!r}).")
    return value


def _edits(asked: dict[str, Any]) -> GraphEdits:
    return GraphEdits.from_plain(asked.get("edits", {}))
