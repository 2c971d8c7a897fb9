"""Energy counters of the machine: NVML for a GPU, RAPL for the processor, where they may be read.

Both count joules since some beginning, for the whole device, whoever uses it; so what a job takes
is measured over seconds, with what the device takes anyway beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

POWERCAP = Path("/sys/class/powercap")
SECONDS = 2.0  # a window; NVML's counter moves only every tenth of a second or so
IDLE_SECONDS = 1.0


class Counter(NamedTuple):
    name: str
    joules: Callable[[], float]
    wraps: float = float("inf")  # where it starts over


class Energy(NamedTuple):
    """Of one job, in joules; `above_idle` without what the devices take while nothing is asked of
    them. None where there is no counter, and then `source` says why."""

    joules: float | None
    above_idle: float | None
    source: str


def counters(device: torch.device) -> tuple[list[Counter], list[str]]:
    """Those that can be read on this machine, and why others cannot."""
    found, missing = [], []
    if device.type == "cuda":
        try:
            found.append(_nvml(device))
        except ImportError:
            missing.append("the GPU's needs a package: pip install 'streamgauge[energy]'")
        except Exception as error:  # NVML's own errors, of a module that may not be there
            missing.append(f"the GPU's cannot be read ({error})")
    try:
        found += _rapl()
    except FileNotFoundError:
        missing.append("the processor has none that this system shows")
    except PermissionError:
        missing.append("the processor's may only be read by an administrator")
    except (OSError, ValueError) as error:
        missing.append(f"the processor's cannot be read ({error})")
    return found, missing


def _nvml(device: torch.device) -> Counter:
    import pynvml
    import torch

    pynvml.nvmlInit()
    # By its identity: NVML counts devices that this process may not see, too.
    name = str(torch.cuda.get_device_properties(device).uuid)
    handle = pynvml.nvmlDeviceGetHandleByUUID(name if name.startswith("GPU-") else f"GPU-{name}")

    def joules() -> float:
        return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1e3

    joules()  # an old GPU has no such counter, and says so here
    return Counter("NVML", joules)


def _rapl(root: Path | None = None) -> list[Counter]:
    """One for each processor package."""
    folders = sorted((root or POWERCAP).glob("intel-rapl:[0-9]"))
    if not folders:
        raise FileNotFoundError(root)
    found = []
    for folder in folders:

        def joules(file: Path = folder / "energy_uj") -> float:
            return int(file.read_text()) / 1e6

        joules()
        wraps = int((folder / "max_energy_range_uj").read_text()) / 1e6
        found.append(Counter("RAPL", joules, wraps))
    return found


def of_job(
    job: Callable[[], Any],
    device: torch.device,
    seconds: float = SECONDS,
    idle: float = IDLE_SECONDS,
    now: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Energy:
    """Repeat a job for some seconds, after some in which nothing is done. `job` returns when its
    work is done."""
    found, missing = counters(device)
    if not found:
        return Energy(None, None, "; ".join(missing))

    def window(act: Callable[[], int]) -> tuple[float, float, int]:
        before, began = [one.joules() for one in found], now()
        times = act()
        spent = now() - began
        used = sum(
            end - start + (one.wraps if end < start else 0.0)
            for one, start, end in zip(found, before, [c.joules() for c in found], strict=True)
        )
        return used, spent, times

    def rest() -> int:
        sleep(idle)
        return 0

    def work() -> int:
        until, times = now() + seconds, 0
        while times == 0 or now() < until:
            job()
            times += 1
        return times

    quiet, rested, _ = window(rest)
    used, worked, times = window(work)
    source = " + ".join(dict.fromkeys(one.name for one in found))
    source += "".join(f"; {why}" for why in missing)
    return Energy(used / times, (used - quiet / rested * worked) / times, source)
