"""Compares engines in turn: each starts once, then every round runs every workload on every
engine, so that a slow minute of the machine hits all alike. `make bench` runs this.

    python -m bench.compare --rounds 3
    python -m bench.compare --vllm PEER/bin/python --checkpoint FOLDER --transformers

Prints medians as tables, with ratios to the first engine; writes compare.json and
compare.png to `--out`.
"""

import argparse
import json
import sys
from pathlib import Path

from bench.contest import Contender, measure
from bench.extras import MissingExtra, plots
from bench.standings import comparison, medians
from bench.turns import leave_on_sigterm
from bench.workload import NAMES


def contenders(options: argparse.Namespace) -> list[Contender]:
    """What the options ask for, our engine first."""
    ours = (sys.executable, "-m")
    settings = [part for setting in options.set for part in ("--set", setting)]
    out = ("--out", str(options.out))
    found = [Contender((*ours, "bench.engine", *settings))]
    for scheduler in ("fcfs", "static"):
        chosen = ("--scheduler", scheduler, *settings, *out)
        found.append(Contender((*ours, "bench.served", *chosen)))
    model = ("--checkpoint", str(options.checkpoint), "--dtype", options.dtype)
    if options.transformers:
        found.append(Contender((*ours, "bench.peers.transformers_static", *model)))
    if options.vllm:
        preload = {"LD_PRELOAD": options.preload} if options.preload else {}
        for module in ("vllm_engine", "vllm_served"):
            command = (str(options.vllm), "-m", f"bench.peers.{module}", *model)
            found.append(Contender(command, preload))
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--workload", action="append", choices=NAMES, help="default: all")
    parser.add_argument("--set", action="append", default=[], metavar="GROUP.FIELD=VALUE")
    parser.add_argument("--out", type=Path, default=Path("bench/out"))
    peers = parser.add_argument_group("peers (bench/peers/README.md)")
    peers.add_argument("--checkpoint", type=Path, help="Hugging Face folder for peers")
    peers.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    peers.add_argument("--transformers", action="store_true", help="slow")
    peers.add_argument("--vllm", type=Path, help="the interpreter of vLLM's environment")
    peers.add_argument("--preload", help="LD_PRELOAD for vLLM")
    return parser


def main() -> int:
    parser = _parser()
    options = parser.parse_args()
    if (options.vllm or options.transformers) and not options.checkpoint:
        parser.error("peers need --checkpoint")
    leave_on_sigterm()
    try:
        draw = plots()
        turns = measure(contenders(options), options.workload or NAMES, options.rounds)
    except (MissingExtra, RuntimeError, OSError) as error:
        print(f"bench.compare: {error}", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "compare.json").write_text(json.dumps(turns, indent=1))
    draw.plot_comparison(medians(turns), options.out / "compare.png")
    print(comparison(turns))
    return 0


if __name__ == "__main__":
    sys.exit(main())
