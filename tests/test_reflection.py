"""What servers say of their own protos, and the descriptor set that they say it from."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import grpc
import pytest
from google.protobuf import json_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection_pb2 as reflection
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from protos.describe import described
from protos.descriptors import FILE, descriptor_set, methods
from protos.walkway.v1 import inference_pb2 as pb
from service.reflection import REFLECTION, Descriptors, NotThere
from tests.wire import Wire, ask, details, serving, status_of

BUF = Path(sys.executable).parent / "buf"
Request = reflection.ServerReflectionRequest
NOT_FOUND, INVALID = (
    code.value[0] for code in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT)
)


async def asked(
    channel: grpc.aio.Channel, *requests: Request, version: str = REFLECTION[0]
) -> list[reflection.ServerReflectionResponse]:
    """All in one stream."""
    method = channel.stream_stream(
        f"/{version}/ServerReflectionInfo",
        request_serializer=Request.SerializeToString,
        response_deserializer=reflection.ServerReflectionResponse.FromString,
    )
    return [answer async for answer in method(iter(requests))]


def pool_of(files: Iterable[FileDescriptorProto]) -> DescriptorPool:
    """Each after those that it imports."""
    pool = DescriptorPool()
    for file in files:
        pool.Add(file)
    return pool


def sent(answer: reflection.ServerReflectionResponse) -> list[FileDescriptorProto]:
    found = answer.file_descriptor_response.file_descriptor_proto
    return [FileDescriptorProto.FromString(each) for each in found]


def comment(file: FileDescriptorProto, *path: int) -> str:
    (found,) = (each for each in file.source_code_info.location if list(each.path) == [*path])
    return str(found.leading_comments)


@pytest.mark.parametrize("version", REFLECTION)
async def test_both_versions_list_what_a_port_serves_and_send_comments(
    version: str,
) -> None:
    symbol = Request(host="here", file_containing_symbol="walkway.v1.InferenceService.Generate")
    listing = Request(list_services="")
    async with serving() as wire:
        for channel, service in (
            (wire.channel, "walkway.v1.InferenceService"),
            (wire.admin_channel, "walkway.v1.AdminService"),
        ):
            (answer,) = await asked(channel, listing, version=version)
            names = {each.name for each in answer.list_services_response.service}
            assert names == {service, "grpc.health.v1.Health", *REFLECTION}
        (answer,) = await asked(wire.channel, symbol, version=version)
    assert (answer.valid_host, answer.original_request) == ("here", symbol)
    first, *imported = sent(answer)
    assert first.name == "protos/walkway/v1/inference.proto"
    assert comment(first, 6, 0, 2, 0).startswith(" The whole answer in one message")
    pool = pool_of([*reversed(imported), first])
    found = pool.FindMethodByName("walkway.v1.InferenceService.Generate")
    assert found.input_type.full_name == "walkway.v1.GenerateRequest"


async def test_what_is_not_there_is_an_answer_and_the_stream_goes_on() -> None:
    message = "walkway.v1.GenerateRequest"
    extension = reflection.ExtensionRequest(containing_type=message, extension_number=7)
    requests = [
        Request(file_by_filename="none.proto"),
        Request(file_containing_symbol="walkway.v1.None"),
        Request(file_containing_extension=extension),
        Request(all_extension_numbers_of_type="walkway.v1.None"),
        Request(),
        Request(all_extension_numbers_of_type=message),
        Request(file_by_filename="google/rpc/error_details.proto"),
    ]
    async with serving() as wire:
        *refused, numbers, file = await asked(wire.channel, *requests)
    codes = [answer.error_response.error_code for answer in refused]
    assert codes == [NOT_FOUND] * 4 + [INVALID]
    assert "'none.proto'" in refused[0].error_response.error_message
    assert all(a.original_request == r for a, r in zip(refused, requests, strict=False))
    found = numbers.all_extension_numbers_response
    assert (found.base_type_name, list(found.extension_number)) == (message, [])
    assert [each.name for each in sent(file)] == [
        "google/rpc/error_details.proto",
        "google/protobuf/duration.proto",
    ]


@pytest.mark.parametrize(
    "symbol",
    [
        "walkway.v1.InferenceService",
        "walkway.v1.InferenceService.GenerateStream",
        "walkway.v1.GenerateRequest",
        "walkway.v1.GenerateRequest.request_id",
        "walkway.v1.GenerateRequest.prompt",
        "walkway.v1.FinishReason",
        "walkway.v1.FINISH_REASON_LENGTH",
        "google.rpc.QuotaFailure.Violation",
        "google.rpc.QuotaFailure.Violation.subject",
        "google.protobuf.Struct.FieldsEntry.value",
        "grpc.health.v1.HealthCheckResponse.ServingStatus",
        "grpc.health.v1.HealthCheckResponse.SERVING",
        "grpc.health.v1.Health.List",
    ],
)
def test_everything_with_a_name_is_a_symbol(symbol: str) -> None:
    described = descriptor_set()
    file = Descriptors(described).with_symbol(symbol)
    scope = ".".join(symbol.split(".")[:2])
    assert file.package.startswith(scope)


def test_extensions_are_found_by_message_and_number() -> None:
    files = FileDescriptorSet()
    base = files.file.add(name="base.proto", package="p")
    base.message_type.add(name="Open").extension_range.add(start=100, end=200)
    more = files.file.add(name="more.proto", package="q", dependency=["base.proto"])
    more.extension.add(name="first", number=101, extendee=".p.Open")
    scope = more.message_type.add(name="Scope")
    scope.extension.add(name="second", number=100, extendee=".p.Open")
    known = Descriptors(files)
    assert known.extensions("p.Open") == [100, 101]
    assert known.extensions("q.Scope") == []
    assert known.with_extension("p.Open", 100) is known.with_symbol("q.Scope.second") == more
    assert known.with_symbol("q.first") == more
    for message, number in (("p.Open", 102), ("p.None", 100)):
        with pytest.raises(NotThere):
            known.with_extension(message, number)


async def test_grpc_s_own_client_finds_methods_and_types() -> None:
    def find(target: str) -> str:
        with grpc.insecure_channel(target) as channel:
            pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
            method = pool.FindMethodByName("walkway.v1.InferenceService.GenerateStream")
            return str(method.output_type.fields_by_name["summary"].message_type.full_name)

    async with serving() as wire:
        found = await asyncio.to_thread(find, target_of(wire))
    assert found == "walkway.v1.Summary"


@pytest.mark.parametrize("version", ["grpc-v1", "grpc-v1alpha"])
async def test_buf_lists_methods_and_calls_one_by_reflection_alone(version: str) -> None:
    async def buf(*arguments: str) -> tuple[int, str]:
        flags = ("curl", "--protocol", "grpc", "--http2-prior-knowledge")
        process = await asyncio.create_subprocess_exec(
            BUF,
            *flags,
            "--reflect-protocol",
            version,
            *arguments,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        return process.returncode, out.decode()

    async with serving() as wire:
        url = f"http://{target_of(wire)}"
        _, listed = await buf("--list-methods", url)
        request = {"tokenIds": [104, 105]}
        method = f"{url}/walkway.v1.InferenceService"
        _, answer = await buf("-d", json.dumps(request), f"{method}/Detokenize")
        bad = {"text": "x", "sampling": {"temperature": -1}}
        _, healths = await buf(f"{url}/grpc.health.v1.Health/List")
        status, error = await buf("-d", json.dumps(bad), f"{method}/Generate")
    inference = [m for m in methods(descriptor_set()) if m.startswith("walkway.v1.Inf")]
    assert set(inference) <= set(listed.split())
    assert json.loads(answer) == {"text": "hi"}
    assert json.loads(healths)["statuses"]["ready"] == {"status": "SERVING"}
    assert status != 0
    assert json.loads(error)["code"] == "invalid_argument"
    assert "sampling.temperature" in error  # out of the details


async def test_the_set_alone_explains_the_details_of_an_error() -> None:
    bad = ask(sampling=pb.Sampling(temperature=-1.0))
    async with serving() as wire:
        status = details(await status_of(wire.stub.Generate(bad)))
    pool = pool_of(descriptor_set().file)
    told = json.loads(json_format.MessageToJson(status, descriptor_pool=pool))
    assert told["details"][0]["@type"] == "type.googleapis.com/google.rpc.BadRequest"
    (violation,) = told["details"][0]["fieldViolations"]
    assert violation["field"] == "sampling.temperature"
    pool.FindMessageTypeByName("google.rpc.RetryInfo")


def test_the_committed_set_is_what_make_protos_writes() -> None:
    assert descriptor_set() == described(), f"`make protos` writes protos/{FILE}"


def target_of(wire: Wire) -> str:
    return f"127.0.0.1:{wire.service.listeners.port}"
