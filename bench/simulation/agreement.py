"""A simulated and a real run of the same load side by side.

    walkway calibrate --out PROFILE.json
    python -m bench.load --trace sample --token-scale 0.1 --time-scale 2 --out out/real
    walkway simulate --trace sample --token-scale 0.1 --speedup 0.5 --profile PROFILE.json \\
        --scheduler fcfs --out out
    python -m bench.simulation.agreement out/real.json out/simulation.json

The service's limits (`engine.max_rows`, `engine.max_step_tokens`, `memory.num_pages`) must be
those of the profile, which `walkway calibrate` takes from the same settings. Calibrate in the
same minutes: nothing else tells how fast the machine was. A load near what the service can do
multiplies what is left of the difference, since it queues: at half the sample's rate costs
10 % off put the median time to first token 10 % off on a CPU, at the sample's own rate 20 to
25 %, at twice the rate far more.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.recording import read as read_recording
from bench.report import table
from bench.samples import Spread, Summary, summarise
from bench.simulation.figures import Figures
from bench.simulation.output import read as read_simulated


def agreement(real: Summary, simulated: Figures) -> str:
    """A table of throughput and latencies with ratios simulated / real."""
    rows = [("", "real", "simulated", "ratio")]
    for name, found, expected in _pairs(real, simulated):
        ratio = f"{expected / found:.2f}" if found else "-"
        rows.append((name, f"{found:.4g}", f"{expected:.4g}", ratio))
    return table(rows)


def _pairs(real: Summary, simulated: Figures) -> Iterator[tuple[str, float, float]]:
    whole = simulated.classes[0]
    yield "requests", sum(real.statuses.values()), whole.requests
    answered = whole.ended.get("length", 0) + whole.ended.get("stop", 0)
    yield "answered", real.statuses.get("OK", 0), answered
    yield "output tokens", real.output_tokens, whole.output_tokens
    yield "output tokens/s", real.output_tokens_per_s, simulated.output_tokens_per_s
    yield from _spreads("TTFT", real.ttft_s, whole.ttft_s)
    yield from _spreads("TPOT", real.tpot_s, whole.tpot_s)


def _spreads(
    name: str, real: Spread | None, simulated: Spread | None
) -> Iterator[tuple[str, float, float]]:
    if real is not None and simulated is not None:
        yield f"{name} p50, s", real.p50, simulated.p50
        yield f"{name} p95, s", real.p95, simulated.p95


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recording", type=Path, help="of bench.load")
    parser.add_argument("simulation", type=Path, help="simulation.json of walkway simulate")
    options = parser.parse_args()
    try:
        real = summarise(read_recording(options.recording).answers)
        simulated = read_simulated(options.simulation)
    except (OSError, msgspec.DecodeError) as error:
        print(f"bench.simulation.agreement: {error}", file=sys.stderr)
        return 2
    for run in simulated.runs:
        print(f"{run.scheduler}: {simulated.load}, {simulated.profile.name}")
        print(agreement(real, run))
    return 0


if __name__ == "__main__":
    sys.exit(main())
