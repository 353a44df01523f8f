"""Tokens a second through the core and the runner, and where a step's time goes: models in
two shapes, graphs on and off, one and two steps in flight.

The host's time of a step is planning, and starting (inputs, plan, launches); what is left is
waiting for the device. With two steps in flight they overlap.
"""

from dataclasses import dataclass

from bench.gpu.engine import Answers, make_core, run
from bench.gpu.findings import Findings
from bench.gpu.made import Made, made, random_tokens
from bench.gpu.place import Place
from bench.gpu.room import PAGE_SIZE, Room
from bench.gpu.shapes import SHAPES, free_for
from models.config import ModelConfig
from models.device_runner import DeviceRunner
from schedulers.fcfs import FCFS, FCFSOptions

BATCHES = (1, 32, 256)
PROMPT = 128
STEP_TOKENS = 4096
OUTPUT = {1: 96, 32: 96, 256: 64}


@dataclass(frozen=True, slots=True)
class Way:
    """How steps are run."""

    graphs: bool
    in_flight: int

    def __str__(self) -> str:
        return f"graphs {'on' if self.graphs else 'off'}, {self.in_flight} in flight"


def check(place: Place, findings: Findings) -> None:
    for name, config in SHAPES.items():
        if findings.out_of_time(name):
            return
        if free_for(findings, name, config):
            _shape(place, findings, name, config)
            place.clear()


def _shape(place: Place, findings: Findings, name: str, config: ModelConfig) -> None:
    rows = max(BATCHES)
    pages = rows * -(-(PROMPT + max(OUTPUT.values())) // PAGE_SIZE)
    room = Room(pages, 0, rows, STEP_TOKENS)
    model = made(place, config, "tested", room)
    findings.say(f"{name}: weights made")
    for graphs in (True, False):
        runner = model.runner(place.recorder(), rows if graphs else 0)
        findings.say(f"{name}: {'graphs captured' if graphs else 'without graphs'}")
        for in_flight in (1, 2):
            for batch in BATCHES:
                way = Way(graphs, in_flight)
                if findings.out_of_time(f"{name}, {way}, batch {batch}"):
                    return
                _measure(findings, name, model, runner, room, way, batch)


def _measure(
    findings: Findings,
    name: str,
    model: Made,
    runner: DeviceRunner,
    room: Room,
    way: Way,
    batch: int,
) -> None:
    """A short run to warm up, then the one that counts."""
    prompts = [random_tokens(model.config, PROMPT, seed=i) for i in range(batch)]
    for tokens in (4, OUTPUT[batch]):
        core = make_core(room, FCFS(FCFSOptions()), way.in_flight)
        answers = run(core, runner, prompts, tokens)
    title = f"{name}, {way}, batch {batch}"
    findings.figure(title, batch * OUTPUT[batch] / answers.wall_s, "tokens/s")
    findings.details[title] = _split(answers)
    if way == Way(True, 1):  # one after the other, so that the two add up
        split = _split(answers)
        host = split["host: planning"] + split["host: starting"]
        findings.figure(f"{title}: host", host, "ms a step")
        findings.figure(f"{title}: waiting", split["waiting for the device"], "ms a step")


def _split(answers: Answers) -> dict[str, float]:
    """Milliseconds of a step, on average over the run's."""
    each = 1e3 / answers.stats.steps
    return {
        "step": answers.wall_s * each,
        "host: planning": answers.planning_s * each,
        "host: starting": answers.starting_s * each,
        "waiting for the device": answers.landing_s * each,
        "device: model": answers.stats.model_s * each,
        "device: sampling": answers.stats.sample_s * each,
    }
