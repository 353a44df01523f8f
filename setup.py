"""Builds the CPU kernels as an optional extension; everything else is in pyproject.toml."""

from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = Path("memory/kernels/native")
SKIPPED = "walkway: the CPU kernels were not built ({}); the reference backend will be used"
COMPILE = [
    "-std=c++17",
    "-O3",
    "-fopenmp",
    "-ffp-contract=off",  # a row's bits must not hang on what a compiler contracts where
    "-fno-math-errno",
    "-fvisibility=hidden",
    "-Wno-psabi",
    "-Wno-unknown-pragmas",
]


class BuildKernels(build_ext):
    """A plain shared library beside its Python module, and no failure without a compiler."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split(".")).with_suffix(".so"))

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:
            print(SKIPPED.format(error), flush=True)
            raise


setup(
    ext_modules=[
        Extension(
            "memory.kernels.libwalkway",
            sources=[str(path) for path in sorted(NATIVE.glob("*.cpp"))],
            depends=[str(path) for path in sorted(NATIVE.glob("*.h"))],
            language="c++",
            extra_compile_args=COMPILE,
            extra_link_args=["-fopenmp"],
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildKernels},
)
