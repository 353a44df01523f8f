"""Writes the descriptor set of everything that a server answers: `make protos`.

Reflection serves it, and a proxy that transcodes needs it: our protos with their comments,
`google.rpc`'s, which errors carry as details, and gRPC's own services. Of these no `.proto` is
installed, so they come without comments.
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_tools import protoc

OURS = ("protos/walkway/v1/inference.proto", "protos/walkway/v1/admin.proto")
DETAILS = ("google/rpc/status.proto", "google/rpc/error_details.proto", "google/rpc/code.proto")
LIST = """
message_type { name: "HealthListRequest" }
message_type {
  name: "HealthListResponse"
  field {
    name: "statuses" json_name: "statuses" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE
    type_name: ".grpc.health.v1.HealthListResponse.StatusesEntry"
  }
  nested_type {
    name: "StatusesEntry"
    field {
      name: "key" json_name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING
    }
    field {
      name: "value" json_name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE
      type_name: ".grpc.health.v1.HealthCheckResponse"
    }
    options { map_entry: true }
  }
}
"""


def described() -> FileDescriptorSet:
    """Every file after those that it imports."""
    files = compiled()
    alpha = FileDescriptorProto.FromString(reflection_pb2.DESCRIPTOR.serialized_pb)
    files.file.extend([health(), alpha, first_version(alpha)])
    return files


def compiled() -> FileDescriptorSet:
    """What protoc makes of the `.proto` files that there are, with their imports."""
    packages = Path(find_spec("google.rpc.status_pb2").origin).parents[2]
    well_known = Path(protoc.__file__).parent / "_proto"
    with TemporaryDirectory() as folder:
        out = Path(folder, "set.binpb")
        arguments = [f"-I{path}" for path in (".", packages, well_known)]
        arguments += ["--include_imports", "--include_source_info"]
        arguments += [f"--descriptor_set_out={out}", *OURS, *DETAILS]
        if protoc.main(["protoc", *arguments]):
            sys.exit(1)
        return FileDescriptorSet.FromString(out.read_bytes())


def health() -> FileDescriptorProto:
    """grpcio's, with the method List, which it does not have yet."""
    file = FileDescriptorProto.FromString(health_pb2.DESCRIPTOR.serialized_pb)
    service = file.service[0]
    if not any(method.name == "List" for method in service.method):
        text_format.Merge(LIST, file)
        takes, returns = (f".{file.package}.HealthList{end}" for end in ("Request", "Response"))
        service.method.add(name="List", input_type=takes, output_type=returns)
    return file


def first_version(alpha: FileDescriptorProto) -> FileDescriptorProto:
    """v1 of reflection, which differs from v1alpha in its names alone."""
    text = text_format.MessageToString(alpha)
    return text_format.Parse(text.replace("v1alpha", "v1"), FileDescriptorProto())


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(described().SerializeToString(deterministic=True))
