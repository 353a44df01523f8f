"""The model's threads wait in tests as they do in the engine process, and FlashInfer, which
writes when it is imported, does so into a folder of the test run."""

import atexit
import os
import tempfile

from service.engine_process import spin_briefly

spin_briefly()

_workspace = tempfile.TemporaryDirectory(prefix="walkway-flashinfer-")
atexit.register(_workspace.cleanup)
os.environ.setdefault("FLASHINFER_WORKSPACE_BASE", _workspace.name)
