"""When a device reached a place in its work."""

import time

import torch


class Mark:
    """The end of all that was given to `device` so far; on a CPU that is now."""

    def __init__(self, device: torch.device) -> None:
        self._at_s = time.perf_counter()
        self._event: torch.cuda.Event | None = None
        if device.type != "cpu":
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(device))
            self._event = event

    def wait(self) -> None:
        """Until the device is there; what it failed in before is raised here."""
        if self._event is not None:
            self._event.synchronize()

    def since_s(self, earlier: "Mark") -> float:
        """Seconds from `earlier` to here, by the device's clock; both were reached."""
        if self._event is None or earlier._event is None:
            return self._at_s - earlier._at_s
        return float(earlier._event.elapsed_time(self._event)) / 1e3
