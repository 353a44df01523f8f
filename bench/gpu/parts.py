"""The parts of the GPU check, in the order in which they run."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bench.gpu.findings import Findings
from bench.gpu.place import Place

Check = Callable[[Place, Findings], None]


@dataclass(frozen=True, slots=True)
class Part:
    """One check. `module` has its function `check`, imported when it runs, so that a missing
    package costs that part alone. On a GPU it is given `budget_s`; never cut short."""

    name: str
    half: Literal["set-up", "correctness", "speed"]
    budget_s: float
    module: str
    about: str

    def check(self) -> Check:
        """The function. Raises what its imports raise."""
        found: Check = importlib.import_module(self.module).check
        return found


def _part(
    name: str, half: Literal["set-up", "correctness", "speed"], budget_s: float, about: str
) -> Part:
    return Part(name, half, budget_s, f"bench.gpu.{name}", about)


PARTS = (
    _part("versions", "set-up", 5, "what runs here"),
    _part("compiling", "set-up", 600, "kernels are loaded, compiled where they are not yet"),
    _part("kernels", "correctness", 40, "attention against float32, poisoned pages"),
    _part("half", "correctness", 10, "the same in fp16"),
    _part("writes", "correctness", 10, "keys and values land in their slots"),
    _part("swap", "correctness", 10, "pages out, poisoned, and in elsewhere"),
    _part("graphs", "correctness", 40, "captured short, replayed long and padded"),
    _part("plans", "correctness", 15, "100 plans in a row"),
    _part("invariance", "correctness", 15, "a row's bits do not depend on the batch"),
    _part("logits", "correctness", 40, "a random model against float32, teacher-forced"),
    _part("draws", "correctness", 20, "sampling on the device against the CPU's"),
    _part("start", "correctness", 40, "from weights to answers, as the service starts"),
    _part("preemption", "correctness", 40, "tokens under pressure, by strategy"),
    _part("served", "correctness", 60, "requests through the whole service"),
    _part("default_model", "correctness", 40, "greedy against float32, where the file is"),
    _part("copy_speed", "speed", 15, "device copies, and pages over the bus"),
    _part("attention_speed", "speed", 40, "decode and mixed steps"),
    _part("sampling_speed", "speed", 30, "drawing tokens, ways and batches"),
    _part("mixed_step", "speed", 40, "decode rows beside a chunk, end to end"),
    _part("plan_cost", "speed", 15, "planning on the host"),
    _part("throughput", "speed", 150, "core and runner, end to end"),
    _part("bare", "speed", 90, "decode on CUDA cores, and a graph's short plan"),
    _part("unfenced", "speed", 40, "what 100 plans in a row need the fence for"),
)
