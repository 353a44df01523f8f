"""A listener that gRPC gives up, and calls that made it do so."""

import asyncio

import grpc.aio
import pytest

from models.toy import ToyTokenizer
from service.frontend import FrontEnd
from service.listeners import ListenerLost
from tests.wire import make_settings, toy_build


async def test_a_listener_that_is_lost_ends_the_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def lost(server: grpc.aio.Server, limit_s: float) -> bool:
        raise RuntimeError("of gRPC's own")

    service = FrontEnd(make_settings(), toy_build(), lambda source: ToyTokenizer())
    try:
        await service.start()
        monkeypatch.setattr(grpc.aio._server.Server, "wait_for_termination", lost)
        with pytest.raises(ListenerLost, match="of gRPC's own"):
            await asyncio.wait_for(service.run(), 5)
    finally:
        await service.stop()


async def test_a_run_whose_listeners_were_stopped_can_be_cancelled() -> None:
    service = FrontEnd(make_settings(), toy_build(), lambda source: ToyTokenizer())
    await service.start()
    running = asyncio.create_task(service.run())
    await asyncio.sleep(0.05)
    await service.stop()
    running.cancel()
    await asyncio.wait_for(asyncio.wait({running}), 5)
    assert running.done()


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload


def call_of(path: bytes) -> bytes:
    """A call as HTTP/2 has it: settings, headers as they are, an empty message."""
    headers = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": path,
        b":authority": b"walkway",
        b"content-type": b"application/grpc",
        b"te": b"trailers",
    }
    literal = b"".join(
        b"\0%c%b%c%b" % (len(name), name, len(value), value) for name, value in headers.items()
    )
    frames = frame(4, 0, 0) + frame(1, 4, 1, literal) + frame(0, 1, 1, b"\0" * 5)
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frames


async def test_a_call_that_ends_grpcs_listener_is_not_survived_in_silence() -> None:
    """From grpcio 1.84 on, a method whose name is not UTF-8 ends the accepting loop."""
    service = FrontEnd(make_settings(), toy_build(), lambda source: ToyTokenizer())
    try:
        await service.start()
        running = asyncio.create_task(service.run())
        _, writer = await asyncio.open_connection("127.0.0.1", service.listeners.port)
        writer.write(call_of(b"/\xff/x"))
        with pytest.raises(ListenerLost):
            await asyncio.wait_for(running, 5)
        writer.close()
    finally:
        await service.stop()
