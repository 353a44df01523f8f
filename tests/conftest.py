"""The model's threads wait in tests as they do in the engine process."""

from service.engine_process import spin_briefly

spin_briefly()
