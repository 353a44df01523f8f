"""The methods of `InferenceService`: messages in, messages and statuses out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import grpc.aio

from protos.walkway.v1 import inference_pb2 as pb
from protos.walkway.v1 import inference_pb2_grpc as pb_grpc
from service.call import Call
from service.deltas import Messages
from service.errors import ServiceError
from service.field_rules import TENANT_HEADER
from service.reception import Reception
from service.records import Records
from service.replies import model_info
from service.requests import tenant_of
from service.statuses import as_ours, statuses
from service.token_queries import TokenQueries
from service.whole import MessageLimits, WholeAnswer, check_fits
from service.writing import Delivery, Streaming

Unary = grpc.aio.ServicerContext[pb.GenerateRequest, pb.GenerateResponse]


class InferenceServicer(pb_grpc.InferenceServiceServicer):
    """Nothing is sent, initial metadata included, before a request was taken."""

    def __init__(
        self,
        reception: Reception,
        queries: TokenQueries,
        records: Records,
        limits: MessageLimits,
        version: str,
    ) -> None:
        self._reception = reception
        self._queries = queries
        self._records = records
        self._limits = limits
        self._version = version

    async def Generate(  # noqa: N802
        self, request: pb.GenerateRequest, context: Unary
    ) -> pb.GenerateResponse:
        """The whole answer or an error."""
        async with statuses(context), self._call(request, context, whole=True) as call:
            whole = WholeAnswer(call, self._limits.largest)
            while (part := await call.next()) is not None:
                whole.add(part)
            if call.error is not None:
                raise call.error
            return whole.message()
        raise AssertionError("a status was set above")

    async def GenerateStream(  # noqa: N802
        self, request: pb.GenerateRequest, context: Streaming
    ) -> AsyncIterator[pb.GenerateStreamResponse]:
        """Deltas as they come, then the summary. After an error that follows messages the
        summary comes too, and then the status."""
        async with statuses(context), self._call(request, context) as call:
            messages = Messages(call, min(self._limits.of_stream, self._limits.largest))
            with Delivery(context, call, partial(self._end, call)) as delivery:
                while (message := await messages.next()) is not None:
                    await delivery.begin(message)
                    yield message
                    await delivery.sent()
            if call.error is not None:
                raise call.error

    async def Tokenize(  # noqa: N802
        self,
        request: pb.TokenizeRequest,
        context: grpc.aio.ServicerContext[pb.TokenizeRequest, pb.TokenizeResponse],
    ) -> pb.TokenizeResponse:
        """What Generate would compute."""
        async with statuses(context):
            return await self._queries.tokenize(request, *self._reception.queried())
        raise AssertionError("a status was set above")

    async def Detokenize(  # noqa: N802
        self,
        request: pb.DetokenizeRequest,
        context: grpc.aio.ServicerContext[pb.DetokenizeRequest, pb.DetokenizeResponse],
    ) -> pb.DetokenizeResponse:
        """The text of token ids."""
        async with statuses(context):
            return await self._queries.detokenize(request, *self._reception.queried())
        raise AssertionError("a status was set above")

    async def GetModelInfo(  # noqa: N802
        self,
        request: pb.GetModelInfoRequest,
        context: grpc.aio.ServicerContext[pb.GetModelInfoRequest, pb.GetModelInfoResponse],
    ) -> pb.GetModelInfoResponse:
        """What is served."""
        async with statuses(context):
            ready, tokenising = self._reception.model()
            has_chat = tokenising.tokenizer.has_chat_template
            return model_info(ready, has_chat, self._limits.largest, self._version)
        raise AssertionError("a status was set above")

    @asynccontextmanager
    async def _call(
        self, request: pb.GenerateRequest, context: Unary | Streaming, whole: bool = False
    ) -> AsyncIterator[Call]:
        """A request from being taken to its one clean-up, written down either way."""
        header = _header(context, TENANT_HEADER)
        name, tenant = request.request_id, tenant_of(request, header)
        arrival = self._reception.arrive(context.time_remaining())
        try:
            if whole:
                check_fits(request, self._limits.largest)
            call = await self._reception.take(request, arrival, header)
        except Exception as error:
            self._records.refused(name, tenant, as_ours(error))
            raise
        except asyncio.CancelledError:
            self._records.refused(name, tenant, self._reception.why_over(arrival))
            raise
        try:
            yield call
        except Exception as error:
            self._end(call, as_ours(error))
            raise
        finally:
            self._end(call)

    def _end(self, call: Call, error: ServiceError | None = None) -> None:
        """The one clean-up of a request that was taken. Again is a no-op."""
        if not call.closed:
            call.error = error or call.error
            call.close()
            self._records.ended(call)


def _header(context: Unary | Streaming, name: str) -> str:
    """The first value of an entry of the call's metadata; empty without."""
    values = (value for key, value in context.invocation_metadata() or () if key == name)
    return str(next(values, ""))
