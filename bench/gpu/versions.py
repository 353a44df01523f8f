"""What runs here: versions, device, memory."""

import platform
import shutil
from importlib.metadata import PackageNotFoundError, version

import torch

from bench.gpu.findings import Findings
from bench.gpu.place import Place

PACKAGES = (
    "torch",
    "flashinfer-python",
    "flashinfer-cubin",
    "flashinfer-jit-cache",
    "apache-tvm-ffi",
    "numpy",
    "triton",
    "transformers",
    "safetensors",
    "gguf",
    "msgspec",
    "sortedcontainers",
)


def check(place: Place, findings: Findings) -> None:
    found = {name: _version(name) for name in PACKAGES}
    details: dict[str, object] = {"python": platform.python_version(), **found}
    details["device"] = place.device_name
    details["nvcc"] = shutil.which("nvcc")
    if place.on_gpu:
        details |= _device(findings)
    findings.details.update(details)
    words = [f"{name} {found[name]}" for name in ("torch", "flashinfer-python")]
    findings.note(f"{place.device_name}, python {details['python']}, {', '.join(words)}")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _device(findings: Findings) -> dict[str, object]:
    of = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info()
    findings.figure("device memory", total / 2**30, "GiB")
    return {
        "capability": f"{of.major}.{of.minor}",
        "multiprocessors": of.multi_processor_count,
        "free_bytes": free,
        "total_bytes": total,
        "cuda": torch.version.cuda,
        "driver": _driver(),
    }


def _driver() -> str | None:
    try:
        import pynvml  # nvidia-ml-py, which FlashInfer needs
    except ModuleNotFoundError:
        return None
    pynvml.nvmlInit()
    return str(pynvml.nvmlSystemGetDriverVersion())
