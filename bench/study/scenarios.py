"""What is asked of the strategies, and by which figures they are compared."""

from dataclasses import dataclass, field

from bench.simulation.demand import Rules

ALONE = "alone"  # the urgent requests at their times, with no others
IDLE = "idle"  # the urgent requests one after another
BOUND = "bound"  # what no schedule can exceed


@dataclass(frozen=True, slots=True)
class Figure:
    """A field of `Outcome` for people. `scale` turns it into `unit`."""

    name: str
    title: str
    unit: str = ""
    scale: float = 1.0
    log: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """A load of one kind. `strategies` are those worth comparing under it, other engines' among
    them, and the references `alone`, `idle` and `bound`. Strategies are told step costs that
    are wrong by `cost_error`; `paced`: each stream is wanted as fast as the usual SLO has
    it."""

    name: str
    title: str
    strategies: tuple[str, ...]
    figures: tuple[Figure, ...]
    rules: Rules = field(default_factory=Rules)
    cost_error: float = 0.0
    paced: bool = False


MET = (Figure("deadlines_met", "deadlines met", "%", 100),)

SCENARIOS = (
    Scenario(
        "throughput",
        "no request is urgent or late",
        (
            *("fcfs", "priority", "deadline", "fair", "shortest", "cache", "swap", "static"),
            *("mlfq", "sglang-lpm", BOUND),
        ),
        (
            Figure("output_tokens_per_s", "output tokens/s"),
            Figure("mean_completion_s", "mean time to the whole answer", "s", log=True),
            Figure("completion_p99_s", "p99 time to the whole answer", "s", log=True),
            Figure("cached", "prompt tokens found in the prefix cache", "%", 100),
        ),
    ),
    Scenario(
        "urgent",
        "a tenth of the requests is urgent",
        ("fcfs", "priority", "vllm-priority", "sglang-priority", ALONE, IDLE),
        (
            Figure("urgent_ttft_p95_s", "p95 time to first token of the urgent", "s", log=True),
            Figure("others_ttft_p95_s", "p95 time to first token of the others", "s", log=True),
            Figure(
                "others_share", "least share of the others in a tenth of the time", "%", 100
            ),
        ),
        Rules(priorities=((12, 0.1), (4, 0.9))),
    ),
    Scenario(
        "deadlines",
        "each answer is wanted in four times what it takes alone",
        ("fcfs", "deadline", BOUND),
        MET,
        Rules(slack=4.0),
    ),
    Scenario(
        "untold",
        "deadlines, and nothing tells how long answers will be",
        ("fcfs", "deadline"),
        MET,
        Rules(slack=4.0, told=False),
    ),
    Scenario(
        "dear",
        "deadlines, untold lengths, and strategies are told costs 30 % too high",
        ("fcfs", "deadline"),
        MET,
        Rules(slack=4.0, told=False),
        cost_error=0.3,
    ),
    Scenario(
        "cheap",
        "deadlines, untold lengths, and strategies are told costs 30 % too low",
        ("fcfs", "deadline"),
        MET,
        Rules(slack=4.0, told=False),
        cost_error=-0.3,
    ),
    Scenario(
        "streams",
        "each first token is wanted in eight times what it takes alone, and then a pace",
        ("fcfs", "deadline"),
        (
            Figure("first_tokens_met", "first tokens in time", "%", 100),
            Figure("paces_met", "streams at the pace that was wanted", "%", 100),
            Figure("streams_met", "streams with both", "%", 100),
        ),
        Rules(first_token_slack=8.0, told=False),
        paced=True,
    ),
    Scenario(
        "tenants",
        "one tenant sends 95 % of the requests, another 5 %",
        ("fcfs", "fair", "vtc"),
        (Figure("light_ttft_p95_s", "p95 time to first token of the light", "s", log=True),),
        Rules(tenants=(("flood", 0.95), ("light", 0.05))),
    ),
    Scenario(
        "shares",
        "two tenants with 70 and 30 % of the requests",
        ("fcfs", "fair", "cache", "vtc"),
        (Figure("service_difference", "service between the two apart at most", "tokens"),),
        Rules(tenants=(("more", 0.7), ("less", 0.3))),
    ),
)


# Of a scenario and figure, the pictures in docs/schedulers.md.
HEADLINES = frozenset(
    {
        ("throughput", "output_tokens_per_s"),
        ("throughput", "mean_completion_s"),
        ("throughput", "cached"),
        ("urgent", "urgent_ttft_p95_s"),
        ("deadlines", "deadlines_met"),
        ("tenants", "light_ttft_p95_s"),
        ("shares", "service_difference"),
    }
)


def scenario(name: str) -> Scenario:
    """The scenario of that name."""
    return next(one for one in SCENARIOS if one.name == name)
