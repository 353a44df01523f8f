"""How much a strategy holds on to."""

import gc
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType, ModuleType

BEYOND = (type, ModuleType, FunctionType, BuiltinFunctionType, MappingProxyType)
OTHERS = ("service.", "memory.")


def reachable(root: object) -> int:
    """Objects that can be reached from `root`. Not through classes, modules, functions and
    read-only views, nor through objects of the core: those are not the strategy's own, and
    count once."""
    seen = {id(root): root}
    left = [root]
    while left:
        for found in gc.get_referents(left.pop()):
            if id(found) in seen or isinstance(found, BEYOND):
                continue
            seen[id(found)] = found
            if not type(found).__module__.startswith(OTHERS):
                left.append(found.__self__ if isinstance(found, MethodType) else found)
    return len(seen)
