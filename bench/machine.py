"""What a benchmark ran on, and what else ran there."""

import os
import platform
import subprocess
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# From here on, figures are those of a machine that did something else as well.
OTHERS_CORES_MAX = 0.05


def git_version():
    done = subprocess.run(["git", "-C", SOURCE, "describe", "--always", "--dirty"],
                          capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def machine():
    name = platform.processor()
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    caches = subprocess.run(["lscpu"], capture_output=True, text=True).stdout
    cache = {k.strip(): v.strip() for k, _, v in (x.partition(":") for x in caches.splitlines())}
    return {"cpu": name, "cores": len(os.sched_getaffinity(0)),
            "l2": cache.get("L2 cache", "?"), "l3": cache.get("L3 cache", "?"),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
            "kernel": platform.release(), "hypervisor": cache.get("Hypervisor vendor", "none"),
            "compiler": subprocess.run(["c++", "-dumpfullversion"], capture_output=True,
                                       text=True).stdout.strip()}


def machine_text(about):
    return (f"{about['cpu']}, {about['cores']} cores, L2 {about['l2']}, L3 {about['l3']}, "
            f"{about['memory_gib']} GiB memory, Linux {about['kernel']}, hypervisor "
            f"{about['hypervisor']}, gcc {about['compiler']}")


class Others:
    """What other processes took of this machine since this object was made, in cores."""

    def __init__(self):
        self.began = time.monotonic()
        self.busy, self.own = self.busy_s(), self.own_s()

    @staticmethod
    def busy_s():
        with open("/proc/stat") as file:
            ticks = [int(x) for x in file.readline().split()[1:9]]
        # user, nice, system, irq, softirq, and what the hypervisor gave to somebody else.
        return sum(ticks[i] for i in (0, 1, 2, 5, 6, 7)) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def own_s():
        times = os.times()
        return times.user + times.system + times.children_user + times.children_system

    def cores(self):
        took = (self.busy_s() - self.busy) - (self.own_s() - self.own)
        return max(0.0, took / (time.monotonic() - self.began))
