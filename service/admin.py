"""The methods of `AdminService`: an operator looks into the engine and exchanges its
scheduler."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import grpc.aio

from protos.walkway.v1 import admin_pb2 as pb
from protos.walkway.v1 import admin_pb2_grpc as pb_grpc
from service.admin_messages import (
    choice_of,
    interval_of,
    limit_of,
    live_requests,
    scheduler,
    statistics,
)
from service.desk import Desk, Rejected
from service.errors import InvalidArgument, Violation
from service.statistics import Statistics
from service.statuses import statuses

MAX_COMPLAINT = 500  # characters: a status has to fit gRPC's 8 KiB of metadata


class AdminServicer(pb_grpc.AdminServiceServicer):
    """`request_id_of` names a request by the engine's id; `check_up` raises Unavailable while
    no engine serves."""

    def __init__(
        self,
        desk: Desk,
        found: Statistics,
        request_id_of: Callable[[int], str],
        check_up: Callable[[], object],
    ) -> None:
        self._desk = desk
        self._statistics = found
        self._request_id_of = request_id_of
        self._check_up = check_up
        self._draining = asyncio.Event()

    def drain(self) -> None:
        """Streams end; what is asked and answered at once still works."""
        self._draining.set()

    async def GetScheduler(  # noqa: N802
        self,
        request: pb.GetSchedulerRequest,
        context: grpc.aio.ServicerContext[pb.GetSchedulerRequest, pb.GetSchedulerResponse],
    ) -> pb.GetSchedulerResponse:
        """The strategy that plans now."""
        async with statuses(context):
            found = await self._desk.inspect(requests=False)
            return pb.GetSchedulerResponse(scheduler=scheduler(found.scheduler))
        raise AssertionError("a status was set above")

    async def SetScheduler(  # noqa: N802
        self,
        request: pb.SetSchedulerRequest,
        context: grpc.aio.ServicerContext[pb.SetSchedulerRequest, pb.SetSchedulerResponse],
    ) -> pb.SetSchedulerResponse:
        """Exchange it."""
        async with statuses(context):
            name, options = choice_of(request)
            try:
                await self._desk.exchange(name, options)
            except Rejected as error:
                why = str(error)[:MAX_COMPLAINT]
                field = "options" if error.in_options else "name"
                raise InvalidArgument([Violation(field, why)]) from error
            found = await self._desk.inspect(requests=False)
            return pb.SetSchedulerResponse(scheduler=scheduler(found.scheduler))
        raise AssertionError("a status was set above")

    async def ListRequests(  # noqa: N802
        self,
        request: pb.ListRequestsRequest,
        context: grpc.aio.ServicerContext[pb.ListRequestsRequest, pb.ListRequestsResponse],
    ) -> pb.ListRequestsResponse:
        """The requests in the engine."""
        async with statuses(context):
            limit = limit_of(request)
            return live_requests(await self._desk.inspect(), limit, self._request_id_of)
        raise AssertionError("a status was set above")

    async def StreamStatistics(  # noqa: N802
        self,
        request: pb.StreamStatisticsRequest,
        context: grpc.aio.ServicerContext[
            pb.StreamStatisticsRequest, pb.StreamStatisticsResponse
        ],
    ) -> AsyncIterator[pb.StreamStatisticsResponse]:
        """Now, and every interval until the server drains."""
        async with statuses(context):
            interval_s = interval_of(request)
            while True:
                self._check_up()
                yield statistics(self._statistics)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._draining.wait(), interval_s)
                if self._draining.is_set():
                    return
