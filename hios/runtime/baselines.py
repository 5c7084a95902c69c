"""What else runs the model itself: eager PyTorch, torch.compile, ONNX Runtime, OpenVINO, and whether it can."""

from __future__ import annotations

from collections.abc import Collection

from hios import platforms
from hios.errors import PlatformError, warn
from hios.models import RUNTIMES

#: Baselines that are left out with a warning where their package is missing; without others nothing runs.
_LEFT_OUT = ("openvino",)


def require(baselines: Collection[str], runtime: str | None, platform: str = "cpu") -> tuple[str, ...]:
    """Refuse baselines that cannot run here.

    Args:
        baselines: names of ``RUNTIMES``.
        runtime: of the program, one of ``RUNTIMES``; None where there is no program.
        platform: one of ``PLATFORMS``.

    Returns:
        The baselines that take part: all but OpenVINO where it is not installed, which a warning says.

    Raises:
        PlatformError: one is for another platform, no program, no C++ compiler, or a package is missing.
    """
    allowed = platforms.find(platform).RUNTIMES
    if wrong := [name for name in baselines if name not in allowed]:
        others = [other for other in platforms.PLATFORMS if wrong[0] in platforms.find(other).RUNTIMES]
        raise PlatformError(
            f"--baselines: found {wrong[0]}, which is for platform {' or '.join(others)}; allowed on platform "
            f"{platform}: {', '.join(name for name in RUNTIMES if name in allowed)}"
        )
    more = [name for name in baselines if name != "eager"]
    if more and runtime is None:
        raise PlatformError(
            f"--baselines: found {more[0]}; allowed with --program only: a baseline runs the model itself"
        )
    missing = set()
    for name in RUNTIMES if runtime == "eager" else ():
        if name in baselines:
            try:
                platforms.executing(platform).require_runtime(name)
            except PlatformError as error:
                if name not in _LEFT_OUT:
                    raise
                warn(f"{error}; it is left out")
                missing.add(name)
    return tuple(name for name in baselines if name not in missing)
