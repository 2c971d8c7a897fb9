"""Energy counters of the machine: NVML for a GPU, RAPL for the processor, where readable.

Both count the joules of the whole device, of all processes. So the energy of a job is measured over
seconds of repetition, and the idle consumption of the device is measured as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from streamgauge.errors import MissingPackage, packages_for

if TYPE_CHECKING:
    import torch

POWERCAP = Path("/sys/class/powercap")
SECONDS = 2.0  # of one measurement; NVML updates its counter about ten times per second
IDLE_SECONDS = 1.0


class Counter(NamedTuple):
    name: str
    joules: Callable[[], float]
    wraps: float = float("inf")  # value at which the counter starts over


class Energy(NamedTuple):
    """Joules of one job, in all and above the idle consumption of the devices. None without a
    counter; `source` then says why."""

    joules: float | None
    above_idle: float | None
    source: str


def counters(device: torch.device) -> tuple[list[Counter], list[str]]:
    """The readable energy counters of this machine, and the reasons why others are not readable."""
    readable, missing = [], []
    if device.type == "cuda":
        try:
            readable.append(_nvml(device))
        except MissingPackage as error:
            missing.append(str(error).rstrip("."))
        except Exception as error:  # NVML's error classes are in an optional package
            missing.append(f"the GPU's cannot be read ({error})")
    try:
        readable += _rapl()
    except FileNotFoundError:
        missing.append("the processor has none that this system shows")
    except PermissionError:
        missing.append("the processor's may only be read by an administrator")
    except (OSError, ValueError) as error:
        missing.append(f"the processor's cannot be read ({error})")
    return readable, missing


def _nvml(device: torch.device) -> Counter:
    with packages_for("the GPU's"):
        import pynvml
    import torch

    pynvml.nvmlInit()
    # By UUID, since NVML also numbers devices that are hidden from this process.
    name = str(torch.cuda.get_device_properties(device).uuid)
    handle = pynvml.nvmlDeviceGetHandleByUUID(name if name.startswith("GPU-") else f"GPU-{name}")

    def joules() -> float:
        return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1e3

    joules()  # raises on an old GPU without this counter
    return Counter("NVML", joules)


def _rapl(root: Path | None = None) -> list[Counter]:
    """One counter per processor package."""
    folders = sorted((root or POWERCAP).glob("intel-rapl:[0-9]"))
    if not folders:
        raise FileNotFoundError(root)
    packages = []
    for folder in folders:

        def joules(file: Path = folder / "energy_uj") -> float:
            return int(file.read_text()) / 1e6

        joules()
        wraps = int((folder / "max_energy_range_uj").read_text()) / 1e6
        packages.append(Counter("RAPL", joules, wraps))
    return packages


def of_job(
    job: Callable[[], Any],
    device: torch.device,
    seconds: float = SECONDS,
    idle: float = IDLE_SECONDS,
    now: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Energy:
    """Energy of one job: measured idle for `idle` seconds, then repeating the job for `seconds`.
    `job` must return only when its work is finished."""
    readable, missing = counters(device)
    if not readable:
        return Energy(None, None, "; ".join(missing))

    def window(act: Callable[[], int]) -> tuple[float, float, int]:
        before, began = [counter.joules() for counter in readable], now()
        times = act()
        spent = now() - began
        used = sum(
            end - start + (counter.wraps if end < start else 0.0)
            for counter, start, end in zip(
                readable, before, [counter.joules() for counter in readable], strict=True
            )
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
    source = " + ".join(dict.fromkeys(counter.name for counter in readable))
    source += "".join(f"; {why}" for why in missing)
    return Energy(used / times, (used - quiet / rested * worked) / times, source)
