"""Listeners that gRPC gives up."""

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
