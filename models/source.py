"""From what the setting `model.source` says to files on this machine."""

import re
from pathlib import Path

from models.errors import ModelError
from models.fetch import NAME, cache_folder, default_model

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_PATTERNS = ("*.json", "*.safetensors", "*.jinja", "merges.txt")


def model_path(source: str) -> Path:
    """A folder with config.json, or a .gguf file. `default` and hub ids are fetched when
    they are not in the cache yet. ModelError, in one line, when there is no such model."""
    if source == "default":
        return default_model()
    return _on_disk(source) or _from_hub(source)


def cached_path(source: str) -> Path | None:
    """The same without fetching: None where it would have to be."""
    if source == "default":
        path = cache_folder() / NAME
        return path if path.exists() else None
    return _on_disk(source) or _in_hub_cache(source)


def _on_disk(source: str) -> Path | None:
    """None for a hub id."""
    path = Path(source).expanduser()
    if path.is_dir():
        if not (path / "config.json").exists():
            raise ModelError(f"{path} has no config.json")
        return path
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelError(f"{path} is not a .gguf file (or name a folder of safetensors)")
        return path
    if _HUB_ID.fullmatch(source):
        return None
    raise ModelError(f"no model at {source}: no such folder, file or hub id")


def _in_hub_cache(name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, "config.json")
    return Path(found).parent if isinstance(found, str) else None


def _from_hub(name: str) -> Path:
    # Imported here: it costs most start-ups half a second for nothing.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        return Path(snapshot_download(name, allow_patterns=list(_PATTERNS)))
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            f"no folder {name} here, and the hub does not give it: {reason}"
        ) from error
