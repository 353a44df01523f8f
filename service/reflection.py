"""Server reflection, v1 and v1alpha, out of the committed descriptor set.

grpcio's own servicer knows v1alpha alone, and serves descriptors of the running code: without
comments, and without methods, fields and enum values as symbols.
"""

from collections.abc import AsyncIterator, Iterable, Iterator

import grpc
import grpc.aio
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from grpc_reflection.v1alpha import reflection_pb2 as pb

REFLECTION = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
"""Their messages are the same on the wire."""

Context = grpc.aio.ServicerContext[pb.ServerReflectionRequest, pb.ServerReflectionResponse]


class NotThere(Exception):
    """What was asked for is not in the set; one line for the caller."""


class Descriptors:
    """Files of a descriptor set by what is in them."""

    def __init__(self, described: FileDescriptorSet) -> None:
        self._files = {file.name: file for file in described.file}
        self._of_symbol: dict[str, FileDescriptorProto] = {}
        self._messages: set[str] = set()
        self._extensions: dict[str, dict[int, FileDescriptorProto]] = {}
        for file in described.file:
            self._of_symbol.update(dict.fromkeys(_symbols(file), file))
            self._messages.update(name for name, _ in _messages(file))
            for extension in _extensions(file):
                numbers = self._extensions.setdefault(extension.extendee.lstrip("."), {})
                numbers[extension.number] = file

    def named(self, name: str) -> FileDescriptorProto:
        """Raises NotThere."""
        if name not in self._files:
            raise NotThere(f"no file {name!r}")
        return self._files[name]

    def with_symbol(self, symbol: str) -> FileDescriptorProto:
        """The file of a service, method, message, field, oneof, enum or enum value, by its
        full name. Raises NotThere."""
        if symbol not in self._of_symbol:
            raise NotThere(f"no symbol {symbol!r}")
        return self._of_symbol[symbol]

    def with_extension(self, message: str, number: int) -> FileDescriptorProto:
        """Raises NotThere."""
        if number not in self._extensions.get(message, {}):
            raise NotThere(f"no extension {number} of {message!r}")
        return self._extensions[message][number]

    def extensions(self, message: str) -> list[int]:
        """Numbers; none of a message that has no extension. Raises NotThere for others."""
        if message not in self._messages:
            raise NotThere(f"no message {message!r}")
        return sorted(self._extensions.get(message, {}))

    def with_imports(self, file: FileDescriptorProto) -> list[FileDescriptorProto]:
        """The file, then all that it needs, each once."""
        found = [file]
        for each in found:
            needed = map(self.named, each.dependency)
            found += (other for other in needed if other not in found)
        return found


class Reflection:
    """Answers for a server that has these `services`."""

    def __init__(self, descriptors: Descriptors, services: Iterable[str]) -> None:
        self._descriptors = descriptors
        self._services = sorted((*services, *REFLECTION))

    def add_to(self, server: grpc.aio.Server) -> None:
        """Under the names of both versions."""
        handler = grpc.stream_stream_rpc_method_handler(
            self.answers,
            pb.ServerReflectionRequest.FromString,
            pb.ServerReflectionResponse.SerializeToString,
        )
        methods = {"ServerReflectionInfo": handler}
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(name, methods) for name in REFLECTION]
        )

    async def answers(
        self, requests: AsyncIterator[pb.ServerReflectionRequest], context: Context
    ) -> AsyncIterator[pb.ServerReflectionResponse]:
        """One for each request. What is not there is an answer, not the end of the call."""
        async for request in requests:
            answer = pb.ServerReflectionResponse(
                valid_host=request.host, original_request=request
            )
            try:
                self._fill(answer, request)
            except NotThere as why:
                _refuse(answer, grpc.StatusCode.NOT_FOUND, str(why))
            yield answer

    def _fill(
        self, answer: pb.ServerReflectionResponse, request: pb.ServerReflectionRequest
    ) -> None:
        known = self._descriptors
        match request.WhichOneof("message_request"):
            case "list_services":
                listed = [pb.ServiceResponse(name=name) for name in self._services]
                answer.list_services_response.service.extend(listed)
            case "file_by_filename":
                self._send(answer, known.named(request.file_by_filename))
            case "file_containing_symbol":
                self._send(answer, known.with_symbol(request.file_containing_symbol))
            case "file_containing_extension":
                wanted = request.file_containing_extension
                number = wanted.extension_number
                self._send(answer, known.with_extension(wanted.containing_type, number))
            case "all_extension_numbers_of_type":
                message = request.all_extension_numbers_of_type
                numbers = answer.all_extension_numbers_response
                numbers.extension_number.extend(known.extensions(message))
                numbers.base_type_name = message
            case _:
                _refuse(answer, grpc.StatusCode.INVALID_ARGUMENT, "nothing was asked for")

    def _send(self, answer: pb.ServerReflectionResponse, file: FileDescriptorProto) -> None:
        files = self._descriptors.with_imports(file)
        found = [each.SerializeToString() for each in files]
        answer.file_descriptor_response.file_descriptor_proto.extend(found)


def _refuse(answer: pb.ServerReflectionResponse, code: grpc.StatusCode, why: str) -> None:
    answer.error_response.error_code = code.value[0]
    answer.error_response.error_message = why


def _messages(file: FileDescriptorProto) -> Iterator[tuple[str, DescriptorProto]]:
    """Nested ones too, by full names."""
    found = [(f"{file.package}.{message.name}", message) for message in file.message_type]
    for name, message in found:
        yield name, message
        found += [(f"{name}.{nested.name}", nested) for nested in message.nested_type]


def _extensions(file: FileDescriptorProto) -> Iterator[FieldDescriptorProto]:
    yield from file.extension
    for _, message in _messages(file):
        yield from message.extension


def _symbols(file: FileDescriptorProto) -> Iterator[str]:
    """Full names; a value of an enum lies beside its enum."""
    yield from (f"{file.package}.{extension.name}" for extension in file.extension)
    yield from _of_enums(file.package, file.enum_type)
    for service in file.service:
        name = f"{file.package}.{service.name}"
        yield name
        yield from (f"{name}.{method.name}" for method in service.method)
    for name, message in _messages(file):
        yield name
        for parts in (message.field, message.oneof_decl, message.extension):
            yield from (f"{name}.{part.name}" for part in parts)
        yield from _of_enums(name, message.enum_type)


def _of_enums(scope: str, enums: Iterable[EnumDescriptorProto]) -> Iterator[str]:
    for enum in enums:
        yield f"{scope}.{enum.name}"
        yield from (f"{scope}.{value.name}" for value in enum.value)
