"""``nseg.studio``: start the server and open the page."""

from __future__ import annotations

import secrets
import socket
import warnings
import webbrowser
from threading import Thread
from typing import Any

from torch_geometric.explain import Explainer

from nseg.errors import InputError, MissingError, NsegWarning
from nseg.live.subject import StudioSubject

TOKEN_BYTES = 18


class Studio:
    """A running studio.

    Args:
        server: the uvicorn server.
        bound: the socket it listens on.
        address: what to open in a browser.
    """

    def __init__(self, server: Any, bound: socket.socket, address: str) -> None:
        self.server, self.address = server, address
        self._socket = bound
        self._thread: Thread | None = None

    def start(self) -> Studio:
        """Serve in a thread, e.g. from a notebook."""
        self._thread = Thread(target=self.server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()
        return self

    def run(self) -> None:
        """Serve until it is interrupted."""
        self.server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Stop serving."""
        self.server.should_exit = True
        if self._thread is not None:
            self._thread.join(10)
        self._socket.close()

    def __repr__(self) -> str:
        return f"Studio({self.address!r})"


def make_studio(
    explainer: Explainer, data: Any, *, port: int = 0, patience: float = 60.0, token: str | None = None, **names: Any
) -> Studio:
    """A studio that does not serve yet.

    Args:
        explainer: the model, and how its predictions are explained.
        data: a dataset, a graph (node level) or several graphs.
        port: port on 127.0.0.1; any free one if 0.
        patience: seconds that a question may take.
        token: secret in the address; a random one if None.
        **names: ``node_names``, ``class_names`` and the like, as :func:`nseg.explain_many` takes them.
    """
    try:
        import uvicorn

        from nseg.live.server import StudioServer
    except ImportError as error:
        raise MissingError(
            'The studio needs Starlette and uvicorn (not installed). Install them: pip install "nseg[studio]".'
        ) from error
    subject = StudioSubject.of(explainer, data, **names)
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(("127.0.0.1", port))
        bound.listen(128)
    except OSError as error:
        bound.close()
        raise InputError(f"The port must be free (got {port}, which is in use). Leave it out to take any.") from error
    number, token = bound.getsockname()[1], token or secrets.token_urlsafe(TOKEN_BYTES)
    hosts = {f"127.0.0.1:{number}", f"localhost:{number}"}
    server = StudioServer(subject, token, hosts, patience)
    config = uvicorn.Config(server.app, log_level="error", access_log=False, lifespan="off", timeout_graceful_shutdown=1)
    return Studio(uvicorn.Server(config), bound, f"http://127.0.0.1:{number}/{token}/")


def studio(explainer: Explainer, data: Any, *, port: int = 0, browser: bool = True, **options: Any) -> Studio:
    """Start the live page on this machine, and open it in a browser.

    Args:
        explainer: the model, and how its predictions are explained.
        data: a dataset, a graph (node level) or several graphs.
        port: port on 127.0.0.1; any free one if 0.
        browser: whether to open a browser; without one, the address is all that is given.
        **options: ``patience`` in seconds, and names as :func:`nseg.explain_many` takes them.

    Returns:
        the running studio, with its ``address`` and ``stop()``.
    """
    running = make_studio(explainer, data, port=port, **options).start()
    if browser and not webbrowser.open(running.address):
        warnings.warn(f"No browser was found. Open {running.address} by hand.", NsegWarning, stacklevel=2)
    return running
