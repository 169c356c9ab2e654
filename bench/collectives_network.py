"""Hosts on one machine: network namespaces at a switch, each by a line of a given speed.

Both directions of every line are shaped (a token bucket at each end), as the ports of a switch are.
"""

import os
import subprocess

BITS_PER_S = 1_000_000_000
BYTES_PER_S = BITS_PER_S / 8
# TCP's share of a line at an MTU of 1,500: 1,448 bytes of payload in a frame of 1,514.
TCP_SHARE = 1448 / 1514


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Hosts:
    """`count` hosts for the length of a with statement. OSError or CalledProcessError: not here."""

    interface = "line"

    def __init__(self, count):
        self.switch = f"bench-{os.getpid()}-switch"
        self.names = [f"bench-{os.getpid()}-{i}" for i in range(count)]

    def __enter__(self):
        try:
            ip("netns", "add", self.switch)
            ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
            ip("-n", self.switch, "link", "set", "bridge", "up")
            for i, name in enumerate(self.names):
                self.connect(i, name)
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_):
        self.remove()

    def connect(self, i, name):
        ip("netns", "add", name)
        ip("-n", name, "link", "add", self.interface, "type", "veth",
           "peer", "name", f"port{i}", "netns", self.switch)
        ip("-n", self.switch, "link", "set", f"port{i}", "master", "bridge")
        ip("-n", name, "address", "add", f"{self.address(i)}/24", "dev", self.interface)
        for space, link in ((self.switch, f"port{i}"), (name, self.interface), (name, "lo")):
            ip("-n", space, "link", "set", link, "up")
        for space, link in ((self.switch, f"port{i}"), (name, self.interface)):
            ip("netns", "exec", space, "tc", "qdisc", "add", "dev", link, "root", "tbf",
               "rate", f"{BITS_PER_S}bit", "burst", "128k", "latency", "50ms")

    def remove(self):
        for name in (self.switch, *self.names):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)

    def prefix(self, host):
        """What a command on that host starts with."""
        return ["ip", "netns", "exec", self.names[host]]

    @staticmethod
    def address(host):
        return f"10.78.0.{host + 1}"
