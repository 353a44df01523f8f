"""What SGLang's policies have in common: who is preempted when decoding runs out of pages."""

from schedulers.interface import RequestView


def by_output(view: RequestView) -> tuple[int, int, int]:
    """SGLang retracts the request with the fewest output tokens, of equals the one with the
    longest prompt, at any priority (`--retraction-policy length`, its default): the last
    by this key."""
    return -view.output_tokens, view.prompt_tokens, view.id
