"""The modules that the FlashInfer backend loads compile for a Hopper GPU, and the image has
the sources that compile them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memory.attention.gpu_targets import Target, library_targets

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_modules_compile_for_sm_90a(tmp_path: Path) -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc")
    driver = tmp_path / "driver"
    driver.mkdir()
    # The linker wants the driver's library, which comes with a driver; its names are not used.
    subprocess.run(
        ["cc", "-shared", "-x", "c", "/dev/null", "-o", driver / "libcuda.so"], check=True
    )
    compiled = subprocess.run(
        [sys.executable, "-m", "memory.attention.flashinfer_kernels", "--head-dim=64"],
        env=os.environ
        | {
            "CUDA_HOME": str(cuda_home()),
            "FLASHINFER_CUDA_ARCH_LIST": "9.0a",
            "FLASHINFER_WORKSPACE_BASE": str(tmp_path),
            "LIBRARY_PATH": str(driver),
            "MAX_JOBS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert compiled.returncode == 0, compiled.stderr[-4000:]
    print(compiled.stdout)
    built = {path.stem: path for path in tmp_path.rglob("cached_ops/*/*.so")}
    named = [line.split()[-1] for line in compiled.stdout.splitlines()]
    assert sorted(built) == sorted(named)
    assert {"rope", "silu_and_mul"} < set(named)
    assert any("head_dim_qk_64" in name and "dtype_q_bf16" in name for name in named)
    for library in built.values():
        assert b".nv_fatbin" in library.read_bytes()
        assert "code=sm_90a" in (library.parent / "build.ninja").read_text()
        assert library_targets(library) == {Target(9, 0, "a")}


def copied_for_the_kernels() -> list[str]:
    """Our files in the image's stage for GPUs when it compiles."""
    dockerfile = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    stage = dockerfile.split(" AS gpu-builder\n")[1]
    before = stage.partition("memory.attention.flashinfer_kernels --aot")[0].splitlines()
    copies = [line.split()[1:-1] for line in before if line.startswith("COPY memory/")]
    return [path for paths in copies for path in paths]


def test_the_image_copies_all_that_compiling_the_kernels_imports(tmp_path: Path) -> None:
    copied = copied_for_the_kernels()
    assert "memory/attention/flashinfer_kernels.py" in copied
    for path in copied:
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, target)
    told = subprocess.run(
        [sys.executable, "-m", "memory.attention.flashinfer_kernels", "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr[-2000:]
    assert "--head-dim" in told.stdout


def cuda_home() -> Path:
    """From the compiler itself: what is called nvcc may be a script elsewhere."""
    if "CUDA_HOME" in os.environ:
        return Path(os.environ["CUDA_HOME"])
    told = subprocess.run(
        ["nvcc", "--dryrun", "-x", "cu", "-c", "/dev/null"],
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    top = next(line for line in told.splitlines() if line.startswith("#$ TOP="))
    return Path(top.removeprefix("#$ TOP=")).resolve()
