"""The machine at hand as the simulator is to know it: step costs as `walkway calibrate`
measures them, times what the front end, the channel and the client take of the same cores."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import msgspec

from bench.overload.client import at_most
from bench.replay.asking import ask
from bench.service_process import Running
from bench.simulation.choice import Choice
from bench.simulation.costs import StepModel
from bench.simulation.demand import Load
from bench.simulation.engine import simulate
from bench.simulation.profile import Profile, read


def calibrated(settings: Sequence[str], path: Path, repeats: int) -> Profile:
    """Measure what steps cost with these settings. Raises RuntimeError when that fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "cli.main", "calibrate", "--out", str(path)]
    command += ["--repeats", str(repeats)]
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(command, stdout=sys.stderr, check=False)
    if done.returncode:
        raise RuntimeError(f"walkway calibrate ended with code {done.returncode}")
    return read(path)


def drag(running: Running, profile: Profile, load: Load, when: str) -> float:
    """How many times longer a closed loop takes on the service than in the simulation: also how
    fast the machine is at the moment. `when` makes its prompts its own, so that no cache has
    them. Raises ValueError when a request fails."""
    asks = [ask(demand, f"{when} {number}") for number, demand in enumerate(load.demands)]
    replies = asyncio.run(at_most(running.target, asks, profile.max_rows))
    if failed := {reply.answer.status for reply in replies if not reply.done}:
        raise ValueError(f"requests failed while the service was measured: {failed}")
    real_s = max(reply.answer.ended_s for reply in replies)
    return real_s / simulate(load, profile, Choice("drag", "fcfs")).ended_s


def slowed(profile: Profile, times: float) -> Profile:
    """The same machine, with every cost that many times as large."""
    costs = {name: times * value for name, value in asdict(profile.costs).items()}
    note = f"{profile.note}; {times:.2f} times as long on the service"
    return msgspec.structs.replace(profile, costs=StepModel(**costs), note=note)
