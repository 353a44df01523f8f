"""The descriptor set that `make protos` writes: what servers answer, with comments."""

from importlib.resources import files

from google.protobuf.descriptor_pb2 import FileDescriptorSet

FILE = "walkway.binpb"


def descriptor_set() -> FileDescriptorSet:
    """Every file after those that it imports."""
    return FileDescriptorSet.FromString(files("protos").joinpath(FILE).read_bytes())


def methods(described: FileDescriptorSet) -> list[str]:
    """Every method of every service, as `package.Service/Method`."""
    return [
        f"{file.package}.{service.name}/{method.name}"
        for file in described.file
        for service in file.service
        for method in service.method
    ]
