"""docs/metrics.md says what the code does."""

import re
from pathlib import Path

from service.metrics.page import VLLM, every_metric, page

PAGE = Path(__file__).parent.parent / "docs/metrics.md"


def test_the_page_lists_what_is_exposed() -> None:
    assert PAGE.read_text() == page(), "`make docs` writes it"


def test_every_metric_says_what_it_is() -> None:
    for metric in every_metric():
        assert metric.documentation.endswith("."), metric.name


def test_what_is_compared_with_others_exists() -> None:
    rows = re.findall(r"^\| `(\w+)`", PAGE.read_text(), re.MULTILINE)
    for ours in VLLM.values():
        assert set(re.findall(r"walkway_\w+", ours)) <= set(rows)
