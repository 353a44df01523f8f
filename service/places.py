"""Where the requests of an engine are: each in exactly one place, by its state."""

from sortedcontainers import SortedDict

from schedulers.interface import RequestId
from service.planner import Planner
from service.request import DONE, WAITING, Move, Request, State


class Places:
    """Live requests, all and by state, in order of id. The planner hears who enters and
    leaves the waiting ones."""

    def __init__(self, planner: Planner) -> None:
        self.requests: dict[RequestId, Request] = {}
        self.waiting: SortedDict = SortedDict()
        self.running: SortedDict = SortedDict()
        self.swapped: SortedDict = SortedDict()
        self.draining: dict[RequestId, Request] = {}
        self._planner = planner
        self._of = {
            State.WAITING: self.waiting,
            State.RUNNING: self.running,
            State.SWAPPED: self.swapped,
            State.DRAINING: self.draining,
        }

    def add(self, request: Request) -> None:
        """A new request waits."""
        self.requests[request.id] = request
        self._enter(request)

    def move(self, request: Request, move: Move) -> None:
        """Change a request's state and, with it, its place; one that is DONE has none.
        Raises IllegalMove and changes nothing."""
        before = request.state
        request.move(move)
        del self._of[before][request.id]
        if before is WAITING:
            self._planner.left.append(request.id)
        if request.state is DONE:
            del self.requests[request.id]
        else:
            self._enter(request)

    def _enter(self, request: Request) -> None:
        self._of[request.state][request.id] = request
        if request.state is WAITING:
            self._planner.arrived.append(request.id)
