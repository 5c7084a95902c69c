"""A server's models over HTTP, by the Open Inference Protocol (v2), with metrics and an OpenAPI description."""

from __future__ import annotations

import asyncio
import math
import resource
import signal
import socket
import threading
import time
from asyncio import TimerHandle, Transport
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from hios import __version__
from hios.errors import HiosError, suggestion
from hios.serving.admission import DeadlineError, OperatorError, QueueFullError
from hios.serving.load import warm_up
from hios.serving.metrics import ENDS, Metrics
from hios.serving.open_inference import VERSION, ModelInterface, RefusedError, api_description
from hios.serving.server import Server

#: Connections at most; that the system keeps until they are accepted; and open files that are left for all else.
_CONNECTIONS, _BACKLOG, _SPARE_FILES = 1000, 128, 192
#: Time in which a request has to arrive, or an answer be taken; that a connection may idle; and for requests that are
#: under way when the server is told to end; seconds.
_ARRIVAL_S, _IDLE_S, _DRAIN_S = 30.0, 75, 30
_LENGTH = "inference-header-content-length"


class HttpServer:
    """Answers requests over HTTP for the models of a server, which is started and warmed up by now.

    The host is a name or address of this machine to listen on; port 0 is any that is free.

    Raises:
        HiosError: the address is not to be had, or a model has values that the protocol has no names for.
    """

    def __init__(self, server: Server, host: str = "127.0.0.1", port: int = 8000) -> None:
        self._server = server
        self._models = {model.label: ModelInterface(model) for model in server.scenario.models}
        self._socket = _listening(host, port)
        warm_up(server)
        self._metrics, self._before = Metrics(), server.counts
        number = self._socket.getsockname()[1]
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{number}"
        routes: dict[str, Callable[[Request], Any]] = {
            "/openapi.json": self._open_api,
            "/metrics": self._text,
            "/v2": self._about,
            "/v2/health/live": self._live,
            "/v2/health/ready": self._ready,
        }
        models = ("/v2/models/{model}", "/v2/models/{model}/versions/{version}")
        for path in models:
            routes |= {path: self._metadata, f"{path}/config": self._config, f"{path}/ready": self._ready}
        application = Starlette(
            routes=[
                *(Route(path, answer, methods=["GET"]) for path, answer in routes.items()),
                *(Route(f"{path}/infer", self._infer, methods=["POST"]) for path in models),
            ],
            middleware=_local(host) if ip_address(self._socket.getsockname()[0]).is_loopback else [],
            exception_handlers={HTTPException: _failed, RefusedError: _refused},
        )
        config = uvicorn.Config(
            application,
            http=_limited(_most_connections()),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            limit_concurrency=None,  # connections are limited, so that those there are get an answer about health
            timeout_keep_alive=_IDLE_S,
            timeout_graceful_shutdown=_DRAIN_S,
            backlog=_BACKLOG,
        )
        self._uvicorn = uvicorn.Server(config)

    def run(self) -> None:
        """Answer requests until `stop`, or SIGTERM or SIGINT in the main thread; then those that are under way.

        They have 30 s; what is not answered by then gets 503.
        """
        # uvicorn raises the signal again when it has ended, for the handlers that were there before.
        main = threading.current_thread() is threading.main_thread()
        obeyed = (signal.SIGTERM, signal.SIGINT) if main else ()
        before = {number: signal.signal(number, lambda *_: self.stop()) for number in obeyed}
        try:
            self._uvicorn.run(sockets=[self._socket])
        finally:
            self._socket.close()
            for number, handler in before.items():
                signal.signal(number, handler)

    def stop(self) -> None:
        """Have `run` return once requests under way are answered; from any thread."""
        self._uvicorn.should_exit = True

    # What it says about itself

    async def _open_api(self, _: Request) -> Response:
        return JSONResponse(api_description(self._models, __version__))

    async def _text(self, _: Request) -> Response:
        counts = {
            label: {name: getattr(own, name) - getattr(self._before[label], name) for name in ("offered", *ENDS)}
            for label, own in self._server.counts.items()
        }
        offered = {label: own["offered"] for label, own in counts.items()}
        text = self._metrics.text(self._server, offered, counts)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def _about(self, _: Request) -> Response:
        extensions = ["binary_tensor_data", "model_configuration"]
        return JSONResponse({"name": "hios", "version": __version__, "extensions": extensions})

    async def _live(self, _: Request) -> Response:
        live = not self._server.lost  # else only a new process helps
        return JSONResponse({"live": live}, 200 if live else 503)

    async def _ready(self, request: Request) -> Response:
        about = {"name": self._model(request).label} if request.path_params else {}
        ready = bool(self._server.lanes_up) and not self._server.lost
        return JSONResponse({**about, "ready": ready}, 200 if ready else 503)

    async def _metadata(self, request: Request) -> Response:
        return JSONResponse(self._model(request).metadata)

    async def _config(self, request: Request) -> Response:
        return JSONResponse(self._model(request).configuration)

    def _model(self, request: Request) -> ModelInterface:
        label = request.path_params["model"]
        if label not in self._models:
            similar = suggestion(label, self._models)
            raise RefusedError(404, f"model: found {label[:100]}; allowed: {', '.join(self._models)}{similar}")
        version = request.path_params.get("version", VERSION)
        if version != VERSION:
            raise RefusedError(404, f"model {label}: version: found {version[:100]}; allowed: {VERSION}")
        return self._models[label]

    # Inference

    async def _infer(self, request: Request) -> Response:
        model = self._model(request)
        length = _header_length(request, model)
        try:
            body = await _body(request, model, length)
            arrived_s = time.perf_counter()
            asked = model.decode(body, length)
            del body
            answer = asyncio.wrap_future(self._server.submit(model.label, asked.inputs, arrived_s=arrived_s))
            outputs = await _unless_gone(request, answer)
        except asyncio.CancelledError:  # as it ends
            error = "the server ends before the request is answered; ask another one"
            return JSONResponse({"error": error}, 503, {"Retry-After": "1"})
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        except RefusedError:
            raise
        except HiosError as error:
            return self._not_answered(model, error)
        self._metrics.add(model.label, [(time.perf_counter() - arrived_s) * 1e3])
        parts, length = model.encode(asked, outputs)
        if length is None:
            return Response(parts[0], media_type="application/json")
        return Response(b"".join(parts), headers={_LENGTH: str(length)}, media_type="application/octet-stream")

    def _not_answered(self, model: ModelInterface, error: HiosError) -> Response:
        """The answer to a request that was taken, but has no outputs."""
        headers = {}
        if isinstance(error, QueueFullError):
            status, headers = 429, {"Retry-After": str(self._emptied_s(model.label))}
        elif isinstance(error, (DeadlineError, OperatorError)):
            status = 504 if isinstance(error, DeadlineError) else 422
        else:
            status, headers = 503, {"Retry-After": "1"}
        return JSONResponse({"error": str(error)}, status, headers)

    def _emptied_s(self, label: str) -> int:
        """Whole seconds that all lanes take for a full queue, by the costs."""
        scenario = self._server.scenario
        model = scenario.models[scenario.number[label]]
        full_ms = model.settings.queue * sum(model.problem.time)
        return max(1, math.ceil(full_ms / 1e3 / scenario.lanes))


class _Connection(H11Protocol):
    """A connection that is cut where there are too many, or a request or an answer takes too long."""

    most = _CONNECTIONS
    _arriving: TimerHandle | None = None
    _leaving: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
        else:
            self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing():
            self._look()  # the next request may be there already, in part

    def _look(self) -> None:
        """Whether a part of a request has arrived, or none while uvicorn does not watch how long that takes."""
        state = self.conn.their_state
        idle = self.conn.trailing_data[0] or self.timeout_keep_alive_task is None
        waits = state is h11.SEND_BODY or (state is h11.IDLE and idle)
        if waits and self._arriving is None:
            self._arriving = self.loop.call_later(_ARRIVAL_S, self.transport.abort)
        elif not waits and self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_leaving()

    def _watch_leaving(self) -> None:
        """Cut the connection if nothing of an answer is taken for a while."""
        left = self.transport.get_write_buffer_size()

        def look() -> None:
            self.transport.abort() if self.transport.get_write_buffer_size() >= left else self._watch_leaving()

        self._leaving = self.loop.call_later(_ARRIVAL_S, look)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._leaving is not None:
            self._leaving.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._arriving, self._leaving):
            if timer is not None:
                timer.cancel()


class _NoPages:
    """Refuses requests of web pages, whose browsers state the origin."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._app
        if scope["type"] == "http" and (origin := Headers(scope=scope).get("origin")) is not None:
            error = f"Origin: found {origin[:100]}; allowed: none, as web pages may not call a server of this machine"
            answer = JSONResponse({"error": error}, 403)
        await answer(scope, receive, send)


def _local(host: str) -> list[Middleware]:
    """What admits programs of this machine alone, where it listens on an address that nobody else reaches."""
    names = ["localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host]
    return [Middleware(TrustedHostMiddleware, allowed_hosts=names, www_redirect=False), Middleware(_NoPages)]


def _limited(connections: int) -> type[_Connection]:
    return type("_Limited", (_Connection,), {"most": connections})


def _most_connections() -> int:
    """As many as there may be, or fewer where the process may not open so many files."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return _CONNECTIONS
    return max(1, min(_CONNECTIONS, files - len(list(Path("/proc/self/fd").iterdir())) - _SPARE_FILES))


def _listening(host: str, port: int) -> socket.socket:
    try:
        (family, *_, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        listening = socket.create_server(address, family=family, backlog=_BACKLOG)
        # Connections inherit it. asyncio sets it only where the socket states its protocol, and head and body of an
        # answer are written apart: the body would wait for the acknowledgement of the head, which takes 40 ms.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        raise HiosError(
            f"--host {host} --port {port}: {error.strerror or error}; allowed: an address of this machine and a port "
            "that is free, or port 0 for any"
        ) from None


def _header_length(request: Request, model: ModelInterface) -> int | None:
    """Length of the JSON before binary tensors; None where all is JSON."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise RefusedError(415, f"Content-Encoding: found {encoding[:100]}; allowed: identity")
    text = request.headers.get(_LENGTH)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 12):
        raise RefusedError(400, f"Inference-Header-Content-Length: found {text[:100]}; allowed: the length of the JSON")
    if int(text) > model.most_json:
        raise RefusedError(413, f"model {model.label}: found JSON of {text} bytes; allowed: {model.most_json}")
    return int(text)


async def _body(request: Request, model: ModelInterface, length: int | None) -> bytearray:
    """The body, refused before it is read where the inputs cannot need so much."""
    most = model.most_json if length is None else length + model.most_binary
    stated = int(request.headers.get("content-length", 0))
    body = bytearray()
    if stated <= most:
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                break
    if max(stated, len(body)) > most:
        found = f"{stated} bytes" if stated else "more"
        raise RefusedError(413, f"model {model.label}: body: found {found}; allowed: {most} bytes")
    if length is not None and len(body) < length:
        raise RefusedError(400, f"Inference-Header-Content-Length: found {length}; allowed: {len(body)}, all there is")
    return body


async def _unless_gone(request: Request, answer: asyncio.Future[Any]) -> Any:
    """What is answered; given up, as long as it waits in the queue, once the client has gone."""
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientDisconnect
        return answer.result()
    finally:
        gone.cancel()
        answer.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _refused(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, getattr(error, "status", 400))


async def _failed(request: Request, error: Exception) -> Response:
    """What there is no route for."""
    status, headers = getattr(error, "status_code", 500), getattr(error, "headers", None)
    found = f"{request.method} {request.url.path[:100]}"
    return JSONResponse({"error": f"found {found}; allowed: see /openapi.json"}, status, headers)
