"""Checks and measures the GPU path on the machine at hand, without a network.

    python -m bench.gpu_check --out gpu.json
    python -m bench.gpu_check --cpu            # the correctness half, kernels emulated
    python -m bench.gpu_check --only kernels --only attention_speed

Runs from a plain checkout on torch, numpy and flashinfer-python; a part that needs more and
does not find it says SKIPPED. Progress goes to standard error, a table to standard output.
Exit status: 0; 1 when a part failed (numerics, or it raised); 2 when of the correctness half
nothing was checked, or a part was left out or PARTIAL for want of time. A speed gate that is
not met is told and changes nothing.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.gpu.course import Course, exit_code, to_stderr
from bench.gpu.findings import Outcome
from bench.gpu.parts import PARTS, Part
from bench.gpu.place import MissingPackage, NoGpu, Place, cpu_place, gpu_place
from bench.gpu.table import record, table

LIMIT_S = 450.0


def main(arguments: Sequence[str] | None = None, parts: Sequence[Part] = PARTS) -> int:
    parser = _parser(parts)
    options = parser.parse_args(arguments)
    chosen = [part for part in parts if not options.only or part.name in options.only]
    where = cpu_place if options.cpu else gpu_place
    try:
        with where(options.quick, options.model) as place:
            return _check(place, chosen, options.limit_s, options.out)
    except (NoGpu, MissingPackage) as error:
        print(f"bench.gpu_check: {error}", file=sys.stderr)
        return 2


def _check(place: Place, parts: Sequence[Part], limit_s: float, out: Path | None) -> int:
    outcomes: list[Outcome] = []
    for outcome in Course(place, limit_s, to_stderr).run(parts):
        outcomes.append(outcome)
        if out:  # after each: a run that is cut short leaves what it found
            _save(out, place, outcomes)
    print(table(outcomes))
    return exit_code(outcomes)


def _save(path: Path, place: Place, outcomes: Sequence[Outcome]) -> None:
    found = {
        "device": place.device_name,
        "quick": place.quick,
        "exit_code": exit_code(outcomes),
        "parts": [record(outcome) for outcome in outcomes],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1, default=str) + "\n")


def _parser(parts: Sequence[Part]) -> argparse.ArgumentParser:
    names = [part.name for part in parts]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cpu", action="store_true", help="emulate the kernels, no speed")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller cases")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", default=[])
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    parser.add_argument("--model", type=Path, help="the default model's file, if elsewhere")
    parser.add_argument(
        "--limit-s",
        type=float,
        default=LIMIT_S,
        help="for all parts, compilation not counted (default: %(default)g)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
