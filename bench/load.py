"""Drives a running service and says how it did.

    python -m bench.load --workload mixed --clients 32
    python -m bench.load --workload fixed --rate 2
    python -m bench.load --trace sample --seconds 60 --time-scale 4 --token-scale 0.1

Closed loop: so many clients, each with one call open. Open loop: calls come when the trace
or a Poisson process says, whatever the service does. Figures go to the terminal, a
recording and a picture to `--out`.
"""

import argparse
import asyncio
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path

import grpc

from bench.client import CONNECT_S, closed_loop, open_loop
from bench.extras import MissingExtra, plots
from bench.recording import Recording, Sample, save
from bench.report import latency_table, report
from bench.samples import Answer
from bench.scrape import ScrapeError, watched
from bench.trace import SAMPLE, Scale, poisson, read_trace, trace_jobs
from bench.workload import NAMES, Job, load_workload, running_at_most
from protos.walkway.v1 import inference_pb2 as pb


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        draw = plots()
        info = model_info(options.target)
        jobs = _jobs(options, info)
        recording = asyncio.run(_record(options, info, jobs))
    except (MissingExtra, ScrapeError, OSError, ValueError, grpc.RpcError) as error:
        print(f"bench.load: {_line(error, options.target)}", file=sys.stderr)
        return 2
    save(recording, options.out.with_suffix(".json"))
    draw.plot_recording(recording, options.out.with_suffix(".png"))
    found = report(recording)
    print(latency_table([found]))
    return 1 if found.summary.failed else 0


def model_info(target: str) -> pb.GetModelInfoResponse:
    """Ask a service what it serves. Raises grpc.RpcError."""
    with grpc.insecure_channel(target) as channel:
        ask: grpc.UnaryUnaryMultiCallable[pb.GetModelInfoRequest, pb.GetModelInfoResponse]
        ask = channel.unary_unary(
            "/walkway.v1.InferenceService/GetModelInfo",
            request_serializer=pb.GetModelInfoRequest.SerializeToString,
            response_deserializer=pb.GetModelInfoResponse.FromString,
        )
        return ask(pb.GetModelInfoRequest(), timeout=CONNECT_S, wait_for_ready=True)


def _jobs(options: argparse.Namespace, info: pb.GetModelInfoResponse) -> list[Job]:
    if options.trace is None:
        jobs = load_workload(options.workload)
    else:
        scale = Scale(
            time=options.time_scale,
            tokens=options.token_scale,
            context_tokens=info.context_tokens,
            seconds=options.seconds,
        )
        path = SAMPLE if options.trace == "sample" else Path(options.trace)
        jobs = trace_jobs(read_trace(path), scale, info.vocab_size, options.seed)
    if not jobs:
        raise ValueError("no requests to send")
    return poisson(jobs, options.rate, options.seed) if options.rate else jobs


async def _record(
    options: argparse.Namespace, info: pb.GetModelInfoResponse, jobs: Sequence[Job]
) -> Recording:
    name = f"trace {Path(options.trace).stem}" if options.trace else options.workload
    run: Coroutine[None, None, list[Answer]]
    if options.rate or options.trace:
        how = f"{len(jobs)} requests, open loop"
        run = open_loop(options.target, jobs)
    else:
        clients = options.clients or running_at_most(options.workload)
        how = f"{clients} clients"
        run = closed_loop(options.target, jobs, clients)
    samples: list[Sample] = []
    if options.metrics == "none":
        answers = await run
    else:
        answers, samples = await watched(run, options.metrics, info.page_size)
    service = f"{info.model} {info.dtype}, {info.scheduler}, {info.attention}"
    return Recording(f"{name}, {how}", service, answers, samples)


def _line(error: Exception, target: str) -> str:
    if isinstance(error, grpc.Call):
        return f"{target}: {error.code().name}: {error.details()}"
    return str(error) or type(error).__name__


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--workload", choices=NAMES, default="mixed")
    what.add_argument("--trace", help="an Azure trace file, or `sample`")
    parser.add_argument("--target", default="127.0.0.1:50051", help="host:port of the service")
    parser.add_argument(
        "--metrics",
        default="http://127.0.0.1:9464/metrics",
        help="its Prometheus endpoint, or `none`",
    )
    parser.add_argument("--clients", type=int, help="closed loop; default: the workload's")
    parser.add_argument("--rate", type=float, help="open loop: Poisson arrivals a second")
    parser.add_argument("--time-scale", type=float, default=1.0, help="2: half the rate")
    parser.add_argument("--token-scale", type=float, default=1.0, help="0.1: a tenth as long")
    parser.add_argument("--seconds", type=float, help="only so much of the trace, unscaled")
    parser.add_argument("--seed", type=int, default=0, help="of prompts and arrivals")
    parser.add_argument("--out", type=Path, default=Path("bench/out/load"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
