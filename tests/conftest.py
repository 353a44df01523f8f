"""The model's threads wait in tests as they do in the engine process, FlashInfer, which writes
when it is imported, does so into a folder of the test run, and no property fails because the
machine is busy."""

import atexit
import os
import tempfile

from hypothesis import HealthCheck, settings

from service.engine_process import spin_briefly

spin_briefly()

settings.register_profile(
    "walkway", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("walkway")

_workspace = tempfile.TemporaryDirectory(prefix="walkway-flashinfer-")
atexit.register(_workspace.cleanup)
os.environ.setdefault("FLASHINFER_WORKSPACE_BASE", _workspace.name)
