"""The process group with real processes, real sockets and kill -9."""

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

PROBE = os.environ["PROBE"]
LOCKSTEP = os.environ["LOCKSTEP"]
DROPPED = ("LOCKSTEP_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMP_NUM_THREADS")


def free_port(address="127.0.0.1"):
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as listener:
        listener.bind((address, 0))
        return listener.getsockname()[1]


def agent_listener():
    """A listener whose next port is free, below the ports that the system hands out by itself."""
    for port in range(20000 + os.getpid() % 10000, 32000, 2):
        agent, following = socket.socket(), socket.socket()
        try:
            agent.bind(("127.0.0.1", port))
            following.bind(("127.0.0.1", port + 1))
            agent.listen()
            return agent
        except OSError:
            agent.close()
        finally:
            following.close()
    raise RuntimeError("no two free ports beside each other")


def environment(variables):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(DROPPED)}
    merged = {**kept, "LOCKSTEP_RECORD": "none", **variables}  # no litter in /tmp
    return {k: str(v) for k, v in merged.items() if v is not None}


class Job:
    """Ranks started by hand, so that what each of them says and does can be seen."""

    def __init__(self, test, port=None, address="127.0.0.1", **extra):
        self.port = port or free_port()
        self.common = {"MASTER_ADDR": address, "MASTER_PORT": self.port, "LOCKSTEP_SECRET": "s"}
        self.common.update(extra)
        self.ranks = []
        test.addCleanup(self.kill)

    def start(self, mode, rank, size, elements=1000, prefix=(), **extra):
        variables = {"RANK": rank, "WORLD_SIZE": size, **self.common, **extra}
        process = subprocess.Popen(
            [*prefix, PROBE, mode, str(elements)],
            env=environment(variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.ranks.append(process)
        return process

    def start_all(self, mode, size, **options):
        return [self.start(mode, rank, size, **options) for rank in range(size)]

    def kill(self):
        for process in self.ranks:
            process.kill()
            process.communicate()


def ended(process, seconds=20):
    """Exit status, output and errors of a rank that must end by itself."""
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


class GroupTest(unittest.TestCase):
    def test_sums_over_each_transport(self):
        for transport, words in (("auto", "shared memory"), ("tcp", "tcp"), ("shm", "shared memory")):
            job = Job(self, LOCKSTEP_TRANSPORT=transport)
            for rank, process in enumerate(job.start_all("sum", 3, elements=300000)):
                status, out, err = ended(process)
                self.assertEqual((status, err), (0, ""))
                self.assertEqual(out, f"rank {rank} of 3: 6 over {words}\n")

    def test_a_killed_rank_is_named_by_all_others_at_once(self):  # S-FT-01
        for transport in ("shm", "tcp"):
            for victim in (0, 1, 2):
                job = Job(self, LOCKSTEP_TRANSPORT=transport)
                ranks = job.start_all("loop", 3, elements=1 << 20)
                for process in ranks:
                    self.assertEqual(process.stdout.readline(), "looping\n")
                killed_at = time.monotonic()
                ranks[victim].kill()
                for rank, process in enumerate(ranks):
                    if rank == victim:
                        continue
                    status, _, err = ended(process)
                    self.assertEqual(status, 1, err)
                    self.assertRegex(err, f"peer_lost: .*rank {victim}")
                self.assertLess(time.monotonic() - killed_at, 5)

    def test_kills_at_random_times_are_named_by_all_others(self):  # S-FT-01
        """Over memory and TCP, by the algorithm that is best and around a ring."""
        seed = int.from_bytes(os.urandom(4), "little")
        print(f"seed {seed}", flush=True)
        rng = random.Random(seed)
        ring = {"LOCKSTEP_ALGORITHM": "all_reduce=ring", "LOCKSTEP_ORDER": "any"}
        for trial in range(50):
            variables = {"LOCKSTEP_TRANSPORT": ("shm", "tcp")[trial % 2], **(ring if trial % 4 > 1 else {})}
            job = Job(self, **variables)
            ranks = job.start_all("loop", 4, elements=rng.choice((1000, 1 << 20, 4 << 20)))
            for process in ranks:
                self.assertEqual(process.stdout.readline(), "looping\n")
            victim = rng.randrange(4)
            time.sleep(rng.uniform(0, 0.3))  # the random time
            killed_at = time.monotonic()
            ranks[victim].kill()
            for rank, process in enumerate(ranks):
                if rank != victim:
                    status, _, err = ended(process)
                    self.assertEqual(status, 1, f"{variables}: {err}")
                    self.assertRegex(err, f"peer_lost: .*rank {victim}", f"seed {seed}, {variables}")
            self.assertLess(time.monotonic() - killed_at, 5, f"seed {seed}, {variables}")

    def test_a_rank_killed_in_a_group_of_some_is_named_by_all(self):  # S-FT-01
        for transport in ("shm", "tcp"):
            job = Job(self, LOCKSTEP_TRANSPORT=transport)
            ranks = job.start_all("part", 4, elements=1 << 20)
            for process in ranks:
                self.assertEqual(process.stdout.readline(), "looping\n")
            ranks[2].kill()
            for rank in (0, 1, 3):
                status, _, err = ended(ranks[rank])
                self.assertEqual(status, 1, err)
                self.assertRegex(err, "peer_lost: .*rank [12]")  # 2 in the job, 1 in the part

    def test_a_rank_killed_while_the_group_forms_is_named(self):
        job = Job(self)
        first = job.start("sum", 0, 3)
        second = job.start("sum", 1, 3)
        time.sleep(0.5)  # it may die at any moment of joining; this is one
        second.kill()
        status, _, err = ended(first)
        self.assertEqual(status, 1)
        self.assertRegex(err, "rank 1")

    def test_rank_0_may_leave_first(self):
        for transport in ("shm", "tcp"):
            job = Job(self, LOCKSTEP_TRANSPORT=transport)
            zero, one, two = job.start_all("leave", 3)
            self.assertEqual(ended(zero)[0], 0)
            for process in (one, two):
                status, _, err = ended(process)
                self.assertEqual(status, 1)
                self.assertRegex(err, "peer_lost: .*rank 0")

    def test_an_exit_without_farewell_is_a_loss(self):
        job = Job(self)
        zero, one = job.start_all("exit", 2)
        self.assertEqual(ended(zero)[0], 0)
        self.assertRegex(ended(one)[2], "peer_lost: .*rank 0")

    def test_two_processes_with_one_rank(self):  # S-RDV-03
        job = Job(self)
        start = time.monotonic()
        ranks = [job.start("sum", 0, 3), job.start("sum", 1, 3), job.start("sum", 1, 3)]
        for process in ranks:
            status, _, err = ended(process)
            self.assertEqual(status, 1)
            self.assertRegex(err, r"two processes claim RANK=1: process \d+ on host .* and process \d+")
        ranks = [Job(self, job.port).start("sum", 0, 3)]
        again = Job(self, job.port)
        while not is_listening(job.port):
            time.sleep(0.01)
        ranks.append(again.start("sum", 0, 3))
        for process in ranks:
            self.assertRegex(ended(process)[2], "two processes claim RANK=0: process")
        self.assertLess(time.monotonic() - start, 10)

    def test_world_sizes_that_differ(self):  # S-RDV-03
        job = Job(self)
        start = time.monotonic()
        for process in (job.start("sum", 0, 2), job.start("sum", 1, 3)):
            status, _, err = ended(process)
            self.assertEqual(status, 1)
            self.assertRegex(err, "WORLD_SIZE: rank 0 has 2, rank 1 .* has 3")
        self.assertLess(time.monotonic() - start, 10)

    def test_local_world_size_that_is_not_so(self):  # S-RDV-03
        job = Job(self, LOCAL_WORLD_SIZE=1, LOCAL_RANK=0)
        for process in job.start_all("sum", 2):
            status, _, err = ended(process)
            self.assertEqual(status, 1)
            self.assertRegex(err, "LOCAL_WORLD_SIZE='1', but 2 of the 2 ranks")

    def test_malformed_variables_end_before_connecting(self):  # S-RDV-03
        good = {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
        rows = [(name, None) for name in good]
        rows += [("RANK", bad) for bad in ("4", "-1", "1 ", "abc", "01", "")]
        rows += [("MASTER_PORT", bad) for bad in ("0", "99999", "80a")]
        rows += [("MASTER_ADDR", "123"), ("MASTER_ADDR", "no-such-host.invalid")]
        for name, value in rows:
            start = time.monotonic()
            done = subprocess.run(
                [PROBE, "sum"],
                env=environment({**good, "LOCKSTEP_JOIN_TIMEOUT": "2", name: value}),
                capture_output=True,
                text=True,
                timeout=20,
            )
            self.assertEqual(done.returncode, 1, (name, value))
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn(value if name == "MASTER_ADDR" and value else name, done.stderr)
            self.assertLess(time.monotonic() - start, 5)

    def test_missing_ranks_are_named_at_the_timeout(self):
        job = Job(self, LOCKSTEP_JOIN_TIMEOUT=1)
        for process in (job.start("sum", 0, 4), job.start("sum", 2, 4)):
            status, _, err = ended(process)
            self.assertEqual(status, 1)
            self.assertRegex(err, "2 of 4 ranks had joined after 1 s; missing: rank 1, 3")
        status, _, err = ended(Job(self, LOCKSTEP_JOIN_TIMEOUT=1).start("sum", 1, 2))
        self.assertRegex(err, r"timeout: rank 1 cannot join its group at 127.0.0.1:\d+ .*refused")

    def test_a_port_in_use(self):  # S-RDV-01
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            port = holder.getsockname()[1]
            start = time.monotonic()
            status, _, err = ended(Job(self, port).start("sum", 0, 2))
            self.assertEqual(status, 1)
            self.assertRegex(err, f"127.0.0.1:{port}.*in use")
            self.assertLess(time.monotonic() - start, 10)

    def test_another_secret_is_refused(self):
        job = Job(self, LOCKSTEP_JOIN_TIMEOUT=3)
        zero = job.start("sum", 0, 2)
        status, _, err = ended(job.start("sum", 1, 2, LOCKSTEP_SECRET="guess"))
        self.assertEqual(status, 1)
        self.assertRegex(err, "unauthenticated: .*secret")
        self.assertRegex(ended(zero)[2], "missing: rank 1")

    def test_listens_on_loopback_alone(self):  # S-SEC-01
        for transport in ("shm", "tcp"):
            job = Job(self, LOCKSTEP_TRANSPORT=transport)
            ranks = job.start_all("sleep", 3)
            for process in ranks:
                self.assertEqual(process.stdout.readline(), "joined\n")
            for process in ranks:
                for address in listeners(process.pid):
                    self.assertEqual(address, "0100007F")
            # Rank 0's store, and everybody's door for messages.
            self.assertEqual([len(listeners(p.pid)) for p in ranks], [2, 1, 1])

    def test_beside_the_store_of_torchruns_agent(self):
        # Debian's own torchrun 1.13 does not start on its Python 3.11; this is what it does to ranks.
        with agent_listener() as agent:
            job = Job(self, agent.getsockname()[1], TORCHELASTIC_USE_AGENT_STORE="True",
                      LOCAL_WORLD_SIZE=2)
            ranks = [job.start("sum", rank, 2, LOCAL_RANK=rank) for rank in range(2)]
            for rank, process in enumerate(ranks):
                self.assertEqual(ended(process)[1], f"rank {rank} of 2: 3 over shared memory\n")

    def test_the_launcher_says_which_rank_was_killed_first(self):
        launcher = subprocess.Popen(
            [LOCKSTEP, "run", "-n", "3", "--", PROBE, "loop", "100000"],
            env=environment({}), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        self.addCleanup(launcher.kill)
        seen = 0
        while seen < 3:
            seen += "looping" in launcher.stdout.readline()
        victim = [p for p in children(launcher.pid) if environment_of(p).get("RANK") == "1"]
        self.assertEqual(len(victim), 1)
        os.kill(victim[0], signal.SIGKILL)
        _, err = launcher.communicate(timeout=20)
        self.assertEqual(launcher.returncode, 137)
        causes = [line for line in err.splitlines() if "lockstep run: rank" in line]
        self.assertRegex(causes[0], "rank 1 .*SIGKILL")
        for process in victim:
            self.assertFalse(os.path.exists(f"/proc/{process}"))

    def test_a_rank_that_throws_or_exits_in_step_5_ends_the_job_with_its_own_status(self):
        for mode, status, words in (("throw", 134, "rank 1 .*SIGABRT"), ("exit3", 3, "rank 1 .*code 3")):
            done = subprocess.run(
                [LOCKSTEP, "run", "-n", "3", "--", PROBE, mode],
                env=environment({}), capture_output=True, text=True, timeout=30,
            )
            self.assertEqual(done.returncode, status, done.stderr)
            causes = [line for line in done.stderr.splitlines() if "lockstep run: rank" in line]
            self.assertRegex(causes[0], words)
            if mode == "throw":
                self.assertIn("the user's own mistake", done.stderr)


    def test_over_ipv6(self):
        for transport, words in (("tcp", "tcp"), ("auto", "shared memory")):
            job = Job(self, free_port("::1"), address="::1", LOCKSTEP_TRANSPORT=transport)
            for rank, process in enumerate(job.start_all("sum", 3)):
                status, out, err = ended(process)
                self.assertEqual((status, err), (0, ""))
                self.assertEqual(out, f"rank {rank} of 3: 6 over {words}\n")

    def test_an_interface_that_does_not_exist_ends_before_connecting(self):  # S-RDV-05
        for value in ("eth9", "^lo,docker", "10.0.0.5", "lo,eth9"):
            start = time.monotonic()
            for process in Job(self, LOCKSTEP_INTERFACE=value).start_all("sum", 2):
                status, _, err = ended(process)
                self.assertEqual(status, 1)
                self.assertRegex(err, f"invalid_argument: LOCKSTEP_INTERFACE='{re.escape(value)}' is no ")
                self.assertIn("name of one network interface or one address", err)
                self.assertRegex(err, r"There are: .*lo \(127\.0\.0\.1")
            self.assertLess(time.monotonic() - start, 5)
        for value in ("", "lo", "127.0.0.1"):
            job = Job(self, LOCKSTEP_INTERFACE=value, LOCKSTEP_TRANSPORT="tcp")
            for process in job.start_all("sum", 2):
                self.assertEqual(ended(process)[::2], (0, ""))

    def test_encrypted_and_not_do_not_mix(self):
        for first, second in (("1", "0"), ("0", "1")):
            job = Job(self, LOCKSTEP_JOIN_TIMEOUT=3)
            zero = job.start("sum", 0, 2, LOCKSTEP_ENCRYPT=first)
            status, _, err = ended(job.start("sum", 1, 2, LOCKSTEP_ENCRYPT=second))
            self.assertEqual(status, 1)
            self.assertRegex(err, "unsupported: .*LOCKSTEP_ENCRYPT must be the same on all ranks")
            err = ended(zero)[2]
            self.assertRegex(err, "missing: rank 1.*LOCKSTEP_ENCRYPT must be the same")
        status, _, err = ended(Job(self, LOCKSTEP_SECRET="", LOCKSTEP_ENCRYPT=1).start("sum", 0, 2))
        self.assertEqual(status, 1)
        self.assertRegex(err, "invalid_argument: .*LOCKSTEP_ENCRYPT=1 needs a secret")

    def test_an_encrypted_job(self):
        for transport, words in (("tcp", "tcp"), ("auto", "shared memory")):
            done = subprocess.run(
                [LOCKSTEP, "run", "-n", "3", "--encrypt", "--", PROBE, "sum", "3000000"],
                env=environment({"LOCKSTEP_TRANSPORT": transport}),
                capture_output=True, text=True, timeout=30,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            for rank in range(3):
                self.assertIn(f"rank {rank} of 3: 6 over {words}\n", done.stdout)

    def test_a_killed_rank_is_named_in_an_encrypted_job(self):
        job = Job(self, LOCKSTEP_TRANSPORT="tcp", LOCKSTEP_ENCRYPT=1)
        ranks = job.start_all("loop", 3, elements=1 << 20)
        for process in ranks:
            self.assertEqual(process.stdout.readline(), "looping\n")
        ranks[1].kill()
        for rank in (0, 2):
            self.assertRegex(ended(ranks[rank])[2], "peer_lost: .*rank 1")

    def test_a_master_address_that_means_every_address_is_refused(self):  # S-SEC-01
        for address in ("0.0.0.0", "::"):
            status, _, err = ended(Job(self, address=address).start("sum", 0, 2))
            self.assertEqual(status, 1)
            self.assertRegex(err, f"'{address}' means every address")

    def test_64_ranks_on_one_host(self):  # S-RDV-06
        for transport in ("tcp", "auto"):
            done = subprocess.run(
                [LOCKSTEP, "run", "-n", "64", "--", PROBE, "sum"],
                env=environment({"LOCKSTEP_TRANSPORT": transport}),
                capture_output=True, text=True, timeout=60,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout.count(" of 64: 2080 over"), 64)

    def test_a_launched_job_listens_on_loopback_alone(self):  # S-SEC-01
        launcher = subprocess.Popen(
            [LOCKSTEP, "run", "-n", "3", "--", PROBE, "sleep"],
            env=environment({"LOCKSTEP_TRANSPORT": "tcp"}), stdout=subprocess.PIPE, text=True,
        )
        self.addCleanup(launcher.communicate)
        self.addCleanup(launcher.kill)
        for _ in range(3):
            self.assertIn("joined", launcher.stdout.readline())
        ranks = children(launcher.pid)
        found = [address for pid in (launcher.pid, *ranks) for address in listeners(pid)]
        self.assertEqual(set(found), {"0100007F"})


def is_listening(port):
    with open("/proc/net/tcp") as table:
        return any(
            line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
            for line in table.readlines()[1:]
        )


def listeners(pid):
    """Hexadecimal addresses that a process listens on, as the kernel shows them."""
    inodes = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = []
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}") as file:
            for line in file.readlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and fields[9] in inodes:
                    found.append(fields[1].split(":")[0])
    return found


def children(pid):
    found = []
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/stat") as file:
                if name.isdigit() and int(file.read().rsplit(")", 1)[1].split()[1]) == pid:
                    found.append(int(name))
        except (OSError, IndexError, ValueError):
            continue
    return found


def environment_of(pid):
    with open(f"/proc/{pid}/environ") as file:
        return dict(x.split("=", 1) for x in file.read().split("\0") if "=" in x)


class HostsTest(unittest.TestCase):
    """Two hosts: network namespaces joined by a cable."""

    def setUp(self):
        self.names = [f"lockstep-{os.getpid()}-{i}" for i in range(2)]
        self.addCleanup(self.remove)
        try:
            for name in self.names:
                self.ip("netns", "add", name)
        except (OSError, subprocess.CalledProcessError) as error:
            self.skipTest(f"network namespaces cannot be made here: {error}")
        a, b = self.names
        self.ip("-n", a, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", b)
        for i, name in enumerate(self.names):
            self.ip("-n", name, "address", "add", f"10.77.0.{i + 1}/24", "dev", "cable")
            self.ip("-n", name, "link", "set", "cable", "up")
            self.ip("-n", name, "link", "set", "lo", "up")

    @staticmethod
    def ip(*arguments):
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    def remove(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)
            shutil.rmtree(f"/etc/netns/{name}", ignore_errors=True)

    def on(self, host):
        return ("ip", "netns", "exec", self.names[host])

    def test_two_hosts_with_names_that_mean_loopback(self):  # S-RDV-02
        for name in self.names:
            os.makedirs(f"/etc/netns/{name}")
            with open(f"/etc/netns/{name}/hosts", "w") as file:
                file.write(f"127.0.0.1 localhost\n127.0.1.1 {socket.gethostname()}\n")
        job = Job(self, address="10.77.0.1")
        ranks = [job.start("sum", rank, 2, prefix=self.on(rank)) for rank in range(2)]
        for rank, process in enumerate(ranks):
            status, out, err = ended(process)
            self.assertEqual((status, err), (0, ""))
            self.assertEqual(out, f"rank {rank} of 2: 3 over tcp\n")

    def test_several_ranks_on_each_host_and_only_the_chosen_address_listens(self):
        job = Job(self, address="10.77.0.1", LOCAL_WORLD_SIZE=2)
        ranks = [
            job.start("sleep", rank, 4, prefix=self.on(rank // 2), LOCAL_RANK=rank % 2)
            for rank in range(4)
        ]
        for process in ranks:
            self.assertEqual(process.stdout.readline(), "joined\n", process)
        for process in ranks:
            for address in listeners(process.pid):
                self.assertIn(address, ("01004D0A", "02004D0A"))

    def test_ipv6_between_hosts(self):
        for i, name in enumerate(self.names):
            self.ip("-n", name, "address", "add", f"fd77::{i + 1}/64", "dev", "cable", "nodad")
        self.link_local(1)
        addresses = ["fd77::1", self.link_local(0) + "%cable"]
        for address in addresses:
            job = Job(self, address=address)
            ranks = [
                job.start("sum", rank, 4, prefix=self.on(rank // 2), LOCKSTEP_TRANSPORT="tcp")
                for rank in range(4)
            ]
            for rank, process in enumerate(ranks):
                status, out, err = ended(process)
                self.assertEqual((status, err), (0, ""), address)
                self.assertEqual(out, f"rank {rank} of 4: 10 over tcp\n")

    def link_local(self, host):
        """The address that the kernel gives to the cable, once it may be used."""
        command = [*self.on(host), "ip", "-6", "-o", "address", "show", "dev", "cable"]
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            for line in subprocess.check_output(command, text=True).splitlines():
                if "fe80:" in line and "tentative" not in line:
                    return line.split()[3].split("/")[0]
            time.sleep(0.05)
        raise AssertionError("the cable has got no link-local address")

    def test_the_chosen_interface_is_used(self):
        a, b = self.names
        self.ip("-n", a, "link", "add", "fast", "type", "veth", "peer", "name", "quick", "netns", b)
        for i, (name, interface) in enumerate(((a, "fast"), (b, "quick"))):
            self.ip("-n", name, "address", "add", f"10.78.0.{i + 1}/24", "dev", interface)
            self.ip("-n", name, "link", "set", interface, "up")
        self.ip("-n", a, "link", "add", "idle", "type", "veth", "peer", "name", "idle2")
        job = Job(self, address="10.77.0.1")
        ranks = [job.start("sleep", 0, 2, prefix=self.on(0), LOCKSTEP_INTERFACE="fast")]
        ranks.append(job.start("sleep", 1, 2, prefix=self.on(1), LOCKSTEP_INTERFACE="10.78.0.2"))
        for process in ranks:
            self.assertEqual(process.stdout.readline(), "joined\n", process)
        found = [sorted(listeners(process.pid)) for process in ranks]
        self.assertEqual(found, [["01004D0A", "01004E0A"], ["02004E0A"]])
        job = Job(self, address="10.77.0.1")
        status, _, err = ended(job.start("sum", 0, 2, prefix=self.on(0), LOCKSTEP_INTERFACE="idle"))
        self.assertEqual(status, 1)
        self.assertRegex(err, r"LOCKSTEP_INTERFACE='idle' is a network interface that is down.*"
                              r"cable \(10.77.0.1.*idle \(down")

    def test_shm_across_hosts_is_refused(self):
        job = Job(self, address="10.77.0.1", LOCKSTEP_TRANSPORT="shm")
        ranks = [job.start("sum", rank, 2, prefix=self.on(rank)) for rank in range(2)]
        for process in ranks:
            status, _, err = ended(process)
            self.assertEqual(status, 1)
            self.assertRegex(err, "LOCKSTEP_TRANSPORT=shm, but rank 1 is not on the host of rank 0")

    def test_a_rank_killed_on_the_other_host_is_named(self):
        job = Job(self, address="10.77.0.1")
        ranks = [job.start("loop", rank, 2, prefix=self.on(rank)) for rank in range(2)]
        for process in ranks:
            self.assertEqual(process.stdout.readline(), "looping\n")
        ranks[1].kill()
        self.assertRegex(ended(ranks[0])[2], "peer_lost: .*rank 1")


if __name__ == "__main__":
    unittest.main(verbosity=2)
