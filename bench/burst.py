"""What a burst of calls meets: `python -m bench.burst [--calls 10000] [--channels 8]`.

A service with the toy model, a client process that makes all calls at once, and a second
process that asks for the health over its own connection all the while. Prints how the
calls ended, and how long the health checks took.
"""

import argparse
import json
import subprocess
import sys
import time
from collections import Counter

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bench.samples import percentile
from bench.service_process import service
from protos.walkway.v1 import inference_pb2 as pb
from protos.walkway.v1.inference_pb2_grpc import InferenceServiceStub

CALL_S = 120.0
TOKENS = 50
ASK_EVERY_S = 0.02
DETAILS = "grpc-status-details-bin"


def call_all(target: str, calls: int, channels: int) -> dict[str, int]:
    """How many calls ended with which code, with or without details."""
    unshared = [("grpc.use_local_subchannel_pool", 1)]
    opened = [grpc.insecure_channel(target, options=unshared) for _ in range(channels)]
    for channel in opened:
        grpc.channel_ready_future(channel).result()
    stubs = [InferenceServiceStub(channel) for channel in opened]  # type: ignore[no-untyped-call]
    request = pb.GenerateRequest(text="hello")
    request.stopping.max_tokens = TOKENS
    request.stopping.ignore_eos = True
    begun = [
        stubs[number % channels].Generate.future(request, timeout=CALL_S)
        for number in range(calls)
    ]
    endings = Counter(map(_ending, begun))
    for channel in opened:
        channel.close()
    return dict(endings)


def _ending(call: "grpc.CallFuture[pb.GenerateResponse]") -> str:
    code = call.code()  # waits for the end
    if code is grpc.StatusCode.OK:
        return "OK"
    explained = DETAILS in dict(call.trailing_metadata())
    return f"{code.name} {'with' if explained else 'WITHOUT'} details"


def health_until(target: str, done: "subprocess.Popen[str]") -> list[float]:
    """Seconds of each health check until the client is done."""
    took_s = []
    with grpc.insecure_channel(target) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while done.poll() is None:
            began_s = time.monotonic()
            stub.Check(health_pb2.HealthCheckRequest(), timeout=CALL_S)
            took_s.append(time.monotonic() - began_s)
            time.sleep(ASK_EVERY_S)
    return took_s


def main() -> int:
    """Exit status 1 when a call ended without a status of the service's own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    asked = parser.parse_args()
    if asked.client:
        print(json.dumps(call_all(asked.client, asked.calls, asked.channels)))
        return 0
    with service(["model.source=toy", *asked.settings]) as running:
        command = [sys.executable, "-m", "bench.burst", "--client", running.target]
        command += ["--calls", str(asked.calls), "--channels", str(asked.channels)]
        began_s = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
            checks_s = health_until(running.target, client)
            endings = json.loads(client.communicate()[0])
    print(
        f"{asked.calls} calls over {asked.channels} channels, "
        f"{time.monotonic() - began_s:.1f} s: {endings}"
    )
    print(
        f"{len(checks_s)} health checks: median {percentile(checks_s, 50):.3f} s, "
        f"p99 {percentile(checks_s, 99):.3f} s, longest {max(checks_s):.3f} s"
    )
    return int(any("WITHOUT" in ending for ending in endings))


if __name__ == "__main__":
    sys.exit(main())
