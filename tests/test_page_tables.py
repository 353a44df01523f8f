"""Page tables as arrays: what the lists say, read once."""

from hypothesis import given, settings
from hypothesis import strategies as st

from models.batch import RequestId, Row, Sampling
from models.page_tables import PageTables
from models.step_inputs import step_inputs


def make_row(request: int, pages: list[int]) -> Row:
    return Row(RequestId(request), [0], 0, pages, True, Sampling(), [0], [])


GROWTH = st.tuples(st.integers(0, 3), st.lists(st.integers(1, 2**31 - 1), max_size=40))
TURNS = st.lists(
    st.tuples(
        st.lists(GROWTH, max_size=4), st.sets(st.integers(0, 3)), st.sets(st.integers(0, 3))
    ),
    max_size=8,
)


@settings(max_examples=80, deadline=None)
@given(TURNS)
def test_an_array_is_what_its_list_says(turns) -> None:
    """Lists grow, go as a whole (another list comes) and are not in every step."""
    tables, lists = PageTables(), [[] for _ in range(4)]
    for grown, gone, present in turns:
        for request in gone:
            lists[request] = []
        for request, pages in grown:
            lists[request].extend(pages)
        rows = [make_row(request, lists[request]) for request in sorted(present)]
        assert [table.tolist() for table in tables.of(rows)] == [
            list(row.pages) for row in rows
        ]


class Told(list):
    """Counts the pages that somebody reads."""

    read = 0

    def __getitem__(self, at):
        found = super().__getitem__(at)
        self.read += len(found) if isinstance(at, slice) else 1
        return found

    def __iter__(self):
        self.read += len(self)
        return super().__iter__()


def test_a_page_is_read_once() -> None:
    tables, pages = PageTables(), Told(range(1, 257))
    for page in range(257, 280):
        row = make_row(1, pages)
        row.start = 16 * len(pages) - 1
        found = step_inputs([row], 16, kept=tables)
        assert found.meta.kv_indices.tolist() == list(range(1, page))
        pages.append(page)
    assert pages.read == 256 + 22
