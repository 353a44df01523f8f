"""Host memory that a GPU copies from and to by itself, as much as was asked for.

torch's own pinned memory (`pin_memory=True`) comes in powers of two: a large store could take
nearly twice its budget.
"""

from weakref import finalize

import torch
from torch import Tensor

PORTABLE = 1
"""cudaHostRegisterPortable: pinned for every device."""


def pinned_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor of zeros, pinned for as long as this object lives; views of it alone do not
    keep it so. torch.cuda.CudaError where the machine does not lock so much. See
    cudaHostRegister."""
    memory = torch.zeros(shape, dtype=dtype)
    address, runtime = memory.data_ptr(), torch.cuda.cudart()  # type: ignore[no-untyped-call]
    torch.cuda.check_error(runtime.cudaHostRegister(address, memory.nbytes, PORTABLE))
    finalize(memory, _release, address, device).atexit = False
    return memory


def _release(address: int, device: torch.device) -> None:
    torch.cuda.synchronize(device)  # copies may still be under way
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    torch.cuda.check_error(runtime.cudaHostUnregister(address))
