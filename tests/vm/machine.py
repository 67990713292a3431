"""One guest, or two that are joined by links: QEMU, and what goes between it and us."""

import dataclasses
import os
import shlex
import subprocess
import sys
import tempfile

from image import Unavailable, boot_files, need

TIME_UP, NOT_STARTED = 124, 125
QEMU = "qemu-system-x86_64"
MKFS = "/sbin/mkfs.ext4"
DISK_BYTES = 512 << 20
ALONE, PEER, CLIENT = "", "1", "2"


@dataclasses.dataclass
class Options:
    kernel: str = "own"     # of this Debian suite
    memory: int = 1024      # MiB
    cpus: int = 2
    timeout: float = 300    # s, from boot to end
    out: str = None         # the guests' /run/out
    peer: str = None        # two hosts, and what the peer's runs
    delay: float = 0        # ms on every rail, in either direction


class Host:
    """One guest. Its folder holds the command, its exit status, the console and the disk."""

    def __init__(self, role, folder, command, options):
        self.role, self.folder, self.options = role, folder, options
        os.makedirs(self.path("control"))
        with open(self.path("control", "command"), "w", encoding="utf-8") as out:
            out.write("export HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
                      f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(command)}\n")
        with open(self.path("disk"), "wb") as disk:
            disk.truncate(DISK_BYTES)
        subprocess.run([MKFS, "-q", "-F", "-O", "^has_journal", self.path("disk")], check=True)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def links(self):
        """Datagrams between unix sockets stand for cables: two rails and a link for everything else."""
        other = CLIENT if self.role == PEER else PEER
        for i in range(3) if self.role else []:
            here, there = (os.path.join(os.path.dirname(self.folder), f"link{i}.{role}") for role in (self.role, other))
            yield from ["-netdev", f"dgram,id=link{i},local.type=unix,local.path={here},"
                                   f"remote.type=unix,remote.path={there}",
                        "-device", f"virtio-net-pci,netdev=link{i},mac=52:54:00:00:0{i}:0{self.role},romfile="]

    def boot(self, boot_files, out, stdout, tty):
        kernel, initrd = boot_files
        # The microvm machine hangs; `rep movsb` is slow when it is emulated.
        append = (f"console=ttyS0 quiet panic=-1 nokaslr mitigations=off vm_host={self.role} "
                  f"vm_delay={self.options.delay:g} vm_tty={'y' if tty else ''}")
        share = "local,security_model=none,multidevs=remap"
        self.process = subprocess.Popen(
            [QEMU, "-accel", "tcg,thread=multi", "-cpu", "max,erms=off,fsrm=off", "-smp", str(self.options.cpus),
             "-m", str(self.options.memory), "-nodefaults", "-no-reboot", "-display", "none",
             "-kernel", kernel, "-initrd", initrd, "-append", append,
             "-serial", "file:" + self.path("console"), "-serial", "stdio", *self.links(),
             "-drive", f"file={self.path('disk')},format=raw,if=virtio,cache=unsafe",
             "-virtfs", f"{share},path=/,mount_tag=host,readonly=on",
             "-virtfs", f"{share},path={self.path('control')},mount_tag=control",
             "-virtfs", f"{share},path={out},mount_tag=out"],
            stdin=None if tty else subprocess.DEVNULL, stdout=stdout)

    def wait(self):
        """The command's exit status, or one of ours."""
        try:
            self.process.wait(self.options.timeout)
        except subprocess.TimeoutExpired:
            print(f"guest: {self.options.timeout:g} s are over", file=sys.stderr)
            return TIME_UP
        try:
            with open(self.path("control", "status"), encoding="ascii") as f:
                return int(f.read())
        except FileNotFoundError:
            with open(self.path("console"), encoding="utf-8", errors="replace") as f:
                print("guest: it ended before its command did:", f.read()[-4000:], sep="\n", file=sys.stderr)
            return NOT_STARTED

    def kill(self):
        self.process.kill()
        self.process.wait()


def run(command, options):
    """Boots what is asked for, and returns the command's exit status or one of ours. Raises Unavailable."""
    for program in (QEMU, MKFS):
        need(program)
    files = boot_files(options.kernel)
    tty = sys.stdin.isatty() and sys.stdout.isatty()
    with tempfile.TemporaryDirectory(prefix="penstock-vm-") as folder:
        out = os.path.abspath(options.out or os.path.join(folder, "out"))
        os.makedirs(out, exist_ok=True)
        hosts = []
        try:
            if options.peer:
                peer = Host(PEER, os.path.join(folder, "peer"), ["sh", "-c", options.peer], options)
                with open(os.path.join(out, "peer.log"), "wb") as log:
                    peer.boot(files, out, log, tty=False)
                hosts.append(peer)
            host = Host(CLIENT if options.peer else ALONE, os.path.join(folder, "host"), command, options)
            host.boot(files, out, None, tty)
            hosts.append(host)
            return host.wait()
        finally:
            for each in hosts:
                each.kill()
