import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RequestState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REQUEST_STATE_UNSPECIFIED: _ClassVar[RequestState]
    REQUEST_STATE_WAITING: _ClassVar[RequestState]
    REQUEST_STATE_RUNNING: _ClassVar[RequestState]
    REQUEST_STATE_SWAPPED: _ClassVar[RequestState]
    REQUEST_STATE_DRAINING: _ClassVar[RequestState]
REQUEST_STATE_UNSPECIFIED: RequestState
REQUEST_STATE_WAITING: RequestState
REQUEST_STATE_RUNNING: RequestState
REQUEST_STATE_SWAPPED: RequestState
REQUEST_STATE_DRAINING: RequestState

class GetSchedulerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetSchedulerResponse(_message.Message):
    __slots__ = ("scheduler",)
    SCHEDULER_FIELD_NUMBER: _ClassVar[int]
    scheduler: Scheduler
    def __init__(self, scheduler: _Optional[_Union[Scheduler, _Mapping]] = ...) -> None: ...

class SetSchedulerRequest(_message.Message):
    __slots__ = ("name", "options")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    options: _struct_pb2.Struct
    def __init__(self, name: _Optional[str] = ..., options: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class SetSchedulerResponse(_message.Message):
    __slots__ = ("scheduler",)
    SCHEDULER_FIELD_NUMBER: _ClassVar[int]
    scheduler: Scheduler
    def __init__(self, scheduler: _Optional[_Union[Scheduler, _Mapping]] = ...) -> None: ...

class Scheduler(_message.Message):
    __slots__ = ("name", "options", "faults", "replaces")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    REPLACES_FIELD_NUMBER: _ClassVar[int]
    name: str
    options: _struct_pb2.Struct
    faults: int
    replaces: str
    def __init__(self, name: _Optional[str] = ..., options: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., faults: _Optional[int] = ..., replaces: _Optional[str] = ...) -> None: ...

class ListRequestsRequest(_message.Message):
    __slots__ = ("limit",)
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    limit: int
    def __init__(self, limit: _Optional[int] = ...) -> None: ...

class ListRequestsResponse(_message.Message):
    __slots__ = ("requests", "total")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[LiveRequest]
    total: int
    def __init__(self, requests: _Optional[_Iterable[_Union[LiveRequest, _Mapping]]] = ..., total: _Optional[int] = ...) -> None: ...

class LiveRequest(_message.Message):
    __slots__ = ("id", "request_id", "state", "tenant", "priority", "age", "prompt_tokens", "output_tokens", "computed_tokens", "pages", "host_pages", "preemptions", "recomputed_tokens")
    ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    AGE_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    HOST_PAGES_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    id: int
    request_id: str
    state: RequestState
    tenant: str
    priority: int
    age: _duration_pb2.Duration
    prompt_tokens: int
    output_tokens: int
    computed_tokens: int
    pages: int
    host_pages: int
    preemptions: int
    recomputed_tokens: int
    def __init__(self, id: _Optional[int] = ..., request_id: _Optional[str] = ..., state: _Optional[_Union[RequestState, str]] = ..., tenant: _Optional[str] = ..., priority: _Optional[int] = ..., age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., prompt_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., computed_tokens: _Optional[int] = ..., pages: _Optional[int] = ..., host_pages: _Optional[int] = ..., preemptions: _Optional[int] = ..., recomputed_tokens: _Optional[int] = ...) -> None: ...

class StreamStatisticsRequest(_message.Message):
    __slots__ = ("interval",)
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    interval: _duration_pb2.Duration
    def __init__(self, interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class StreamStatisticsResponse(_message.Message):
    __slots__ = ("uptime", "scheduler", "running", "waiting", "swapped", "free_pages", "cached_pages", "held_pages", "steps", "input_tokens", "output_tokens", "preemptions", "recomputed_tokens", "swapped_pages", "plan_faults")
    UPTIME_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    SWAPPED_FIELD_NUMBER: _ClassVar[int]
    FREE_PAGES_FIELD_NUMBER: _ClassVar[int]
    CACHED_PAGES_FIELD_NUMBER: _ClassVar[int]
    HELD_PAGES_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SWAPPED_PAGES_FIELD_NUMBER: _ClassVar[int]
    PLAN_FAULTS_FIELD_NUMBER: _ClassVar[int]
    uptime: _duration_pb2.Duration
    scheduler: str
    running: int
    waiting: int
    swapped: int
    free_pages: int
    cached_pages: int
    held_pages: int
    steps: int
    input_tokens: int
    output_tokens: int
    preemptions: int
    recomputed_tokens: int
    swapped_pages: int
    plan_faults: int
    def __init__(self, uptime: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., scheduler: _Optional[str] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ..., swapped: _Optional[int] = ..., free_pages: _Optional[int] = ..., cached_pages: _Optional[int] = ..., held_pages: _Optional[int] = ..., steps: _Optional[int] = ..., input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., preemptions: _Optional[int] = ..., recomputed_tokens: _Optional[int] = ..., swapped_pages: _Optional[int] = ..., plan_faults: _Optional[int] = ...) -> None: ...
