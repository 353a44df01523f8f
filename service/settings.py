"""The one tree of settings. Read once, in the composition root, and passed on as values.

Sources, strongest first: command line, environment (`WALKWAY_GROUP__FIELD`), the TOML file
named by `--config` or `WALKWAY_CONFIG`. Unknown names are errors, in every group; variables
without `__` are none of ours, such as the `WALKWAY_PORT` that Kubernetes sets.
`service.config` reads them.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from models.sizes import read_size

AtLeastOne = Annotated[int, Field(ge=1)]
AtLeastTwo = Annotated[int, Field(ge=2)]


class Group(BaseModel):
    """Frozen, and closed against unknown names. Sizes may be written as `512MiB` or `2GB`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def _read_sizes(cls, value: object, info: ValidationInfo) -> object:
        if isinstance(value, str) and (info.field_name or "").endswith("_bytes"):
            return read_size(value)
        return value


class Server(Group):
    """The gRPC listener and what it grants a call."""

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(50051, ge=0, le=65535, description="0 takes a free port, logged.")
    max_message_bytes: int = Field(
        16 * 2**20,
        ge=4096,
        le=2**31 - 1,  # gRPC's options are C integers
        description="Largest message taken or sent, bytes. A whole answer has to fit; one "
        "with many log-probabilities that does not ends RESOURCE_EXHAUSTED.",
    )
    max_stream_message_bytes: int = Field(
        2**20,
        ge=4096,
        description="A stream's messages are cut at this, bytes, or at `max_message_bytes` "
        "where that is less. Clients refuse messages above their own limit, which is 4 MiB "
        "unless they set another. Smaller costs a slow reader more messages.",
    )
    max_unread_bytes: int = Field(
        64 * 2**20,
        ge=2**20,
        description="What all streams together keep for callers that do not read, bytes: about "
        "50 answers of 8,000 tokens with 20 log-probabilities, or 2,000 without. Beyond it "
        "streams that have not read for a second end RESOURCE_EXHAUSTED, the largest first. "
        "Larger lets more callers pause, and takes the memory.",
    )
    max_waiting_requests: int = Field(
        1024, ge=1, description="More are refused; larger means longer queues."
    )
    max_waiting_tokens: int = Field(
        1_000_000, ge=1, description="Prompt tokens waiting at most; more are refused."
    )
    max_waiting_bytes: int = Field(
        64 * 2**20,
        ge=1,
        description="Bytes of prompts waiting at most, for Tokenize as many again; more are "
        "refused. Tokenising takes some 160 times the bytes of a prompt in memory.",
    )
    max_connections: int = Field(
        4096,
        ge=1,
        description="Connections at most; more are closed at once. Fewer where the system "
        "leaves too few file descriptors. Each costs about 40 KB.",
    )
    connection_idle_s: float = Field(
        600.0,
        gt=0,
        le=2e6,
        description="A connection without calls for so long is closed, seconds; clients open "
        "another with their next call.",
    )
    max_concurrent_calls: int = Field(
        4096,
        ge=1,
        description="Open calls of a gRPC service at most, streams too; more are refused "
        "unread. Each costs about 50 KB.",
    )
    request_timeout_s: float | None = Field(
        600.0,
        gt=0,
        description="A call ends DEADLINE_EXCEEDED after this, seconds; inf: never.",
    )
    queue_timeout_s: float | None = Field(
        120.0, gt=0, description="A call not admitted by then is refused, seconds."
    )
    drain_delay_s: float = Field(
        3.0,
        ge=0,
        description="SIGTERM: new calls are still served for so long after health says "
        "NOT_SERVING, seconds. Longer than balancers take to hear of it; lengthens every such "
        "exit. SIGINT skips it.",
    )
    grace_s: float = Field(
        25.0,
        ge=0,
        description="After that, running calls may finish within, seconds; new ones are "
        "refused. A second signal ends both at once. Kubernetes kills after 30 s for both, "
        "where its `terminationGracePeriodSeconds` says nothing else.",
    )
    keepalive_min_ping_s: float = Field(
        5.0,
        gt=0,
        le=2e6,
        description="Clients may ping this often, with or without calls, seconds.",
    )


class Engine(Group):
    """The engine process and its supervision."""

    isolation: Literal["process", "inline"] = Field(
        "process", description="`inline` runs the engine in a thread: tests, debugging."
    )
    max_rows: AtLeastOne | Literal["auto"] = Field(
        "auto",
        description="Requests computed in one step at most. `auto`: 32 on a CPU, 256 on a GPU. "
        "More answer more at once, each of them more slowly.",
    )
    max_step_tokens: AtLeastTwo | Literal["auto"] = Field(
        "auto",
        description="Tokens of one step, decode rows included. `auto`: 512 on a CPU, 8192 on a "
        "GPU, 4096 on one of under 40 GiB. Larger prefills faster and lets running requests "
        "wait longer between tokens.",
    )
    target_gap_ms: float | None = Field(
        None,
        gt=0,
        le=3_600_000,
        description="Aim at so long between two tokens of a running request, milliseconds: "
        "steps take fewer tokens than `max_step_tokens` where they would last longer. Smaller "
        "streams more evenly and prefills more slowly.",
    )
    threads: int = Field(
        0,
        ge=0,
        description="CPU threads of the model, of all its ranks; 0: as many as the cores that "
        "this process may use, by affinity and CPU limits (cgroups), whole cores. More than "
        "those wait for each other.",
    )
    steps_in_flight: Literal[1, 2, "auto"] = Field(
        "auto",
        description="2: plan the next step while one is computed. For devices that are faster "
        "than Python; a request that stops then costs a row more. `auto`: 1 on a CPU and with "
        "`tensor_parallel`, 2 on a GPU.",
    )
    tensor_parallel: int = Field(
        1, ge=1, description="Processes that share each layer; must divide the KV heads."
    )
    cuda_graphs: bool = Field(
        True, description="On a GPU: replay steps of decode rows; off saves memory and start."
    )
    stall_timeout_s: float = Field(
        30.0, gt=0, description="No step for so long while work is pending: restart, seconds."
    )
    restart_backoff_s: float = Field(0.5, gt=0, description="First wait before a restart.")
    restart_backoff_max_s: float = Field(30.0, gt=0, description="Longest such wait.")
    max_deaths: int = Field(5, ge=1, description="Deaths in `death_window_s` end the service.")
    death_window_s: float = Field(600.0, gt=0, description="See `max_deaths`, seconds.")
    check: bool = Field(
        False, description="Check every invariant at every step: slow, for debugging."
    )

    @model_validator(mode="after")
    def _leaves_room_for_prefills(self) -> Self:
        rows, tokens = self.max_rows, self.max_step_tokens
        if rows != "auto" and tokens != "auto" and tokens <= rows:
            raise ValueError(
                f"max_step_tokens ({tokens}) must be above max_rows ({rows}): "
                "else rows that decode can hold up every arrival"
            )
        return self

    @model_validator(mode="after")
    def _ranks_can_be_ended_and_follow(self) -> Self:
        if self.tensor_parallel == 1:
            return self
        if self.isolation == "inline":
            raise ValueError(
                f"tensor_parallel ({self.tensor_parallel}) needs isolation = process: when a "
                "rank dies, the process of the engine has to end"
            )
        if self.steps_in_flight == 2:
            raise ValueError(
                f"tensor_parallel ({self.tensor_parallel}) needs steps_in_flight = 1: the "
                "ranks are told a step's tokens, which must have returned"
            )
        return self


class Model(Group):
    """What is served."""

    source: str = Field(
        "default", description="`default`, `toy`, a folder, a .gguf file or a hub id."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="`auto`: `cuda` where torch finds a GPU, else `cpu`."
    )
    dtype: Literal["auto", "bf16", "fp16", "fp32"] = Field(
        "auto",
        description="`auto`: bf16 on a GPU or a CPU with bf16 instructions, else fp32. `fp16` "
        "is for GPUs.",
    )
    max_context_tokens: int | None = Field(
        None, ge=1, description="Lowers the model's own context length."
    )


class Memory(Group):
    """KV pages."""

    page_size: int = Field(16, ge=1, le=256, description="Tokens a page.")
    num_pages: int | None = Field(
        None, ge=2, description="Pages of the pool, scratch page included; overrides the size."
    )
    pool_bytes: int | None = Field(
        None,
        ge=2**20,
        description="Size of the pool, which must fit beside the weights. Absent: 2 GiB on a "
        "CPU, `device_fraction` on a GPU.",
    )
    device_fraction: float = Field(
        0.9,
        gt=0,
        le=1,
        description="Of the GPU memory that graphs and a trial step leave free, for the pool.",
    )
    host_bytes: int = Field(0, ge=0, description="Host store for swapped pages; 0: none.")
    watermark_pages: int = Field(
        2, ge=0, description="Pages an admission leaves free while anything runs."
    )
    prefix_cache: bool = Field(True, description="Keep full pages for later prompts.")


class Attention(Group):
    """The attention backend."""

    backend: Literal["auto", "reference", "cpu", "flashinfer"] = Field(
        "auto",
        description="`auto`: `flashinfer` on a GPU; `cpu` where its extension was built; else "
        "`reference`.",
    )
    batch_invariant: bool = Field(
        False,
        description="`flashinfer`: a decode row's attention has the same bits beside whatever "
        "others, more slowly where rows are few. The matrix products of a GPU are not covered, "
        "so answers may still depend on the batch. `cpu` always does it, `reference` cannot.",
    )


class SchedulerChoice(Group):
    """Which strategy plans the steps."""

    name: str = Field("fcfs", description="Built-in name, entry point or package.module:Class.")
    options: dict[str, Any] = Field(default_factory=dict, description="The strategy's own.")


class Log(Group):
    """Structured log on stderr."""

    format: Literal["auto", "json", "console"] = Field(
        "auto", description="`auto`: colours on a terminal, else JSON."
    )
    level: Literal["debug", "info", "warning", "error"] = "info"


class Metrics(Group):
    """Prometheus endpoint."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: int = Field(9464, ge=0, le=65535, description="0 takes a free port, logged.")


class Admin(Group):
    """The operator's gRPC listener. Whoever reaches it may exchange the scheduler, for any
    class that this machine can import."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: int = Field(50052, ge=0, le=65535, description="0 takes a free port, logged.")


class Settings(BaseSettings):
    """All settings."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix="WALKWAY_",
        env_nested_delimiter="__",
    )

    server: Server = Server()
    engine: Engine = Engine()
    model: Model = Model()
    memory: Memory = Memory()
    attention: Attention = Attention()
    scheduler: SchedulerChoice = SchedulerChoice()
    log: Log = Log()
    metrics: Metrics = Metrics()
    admin: Admin = Admin()
