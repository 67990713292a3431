"""What a guest boots from: a Debian kernel, unpacked so that it starts at once, and an initial file system that holds
busybox, the modules and `init`. Made once and kept in $XDG_CACHE_HOME/penstock-vm, a folder a suite.

The kernel's package is downloaded and never installed; apt works here with lists of its own, so that this needs no
root, no `apt-get update` before it and no change to the machine's sources."""

import fcntl
import lzma
import os
import platform
import re
import shutil
import struct
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

# In the order of loading, after what they depend on. crc32_generic comes first: without it no rxe device can be added,
# and crc32_pclmul in its place (left out below) is slower when the processor is emulated.
MODULES = ["crc32_generic", "virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_net", "virtio_blk", "ext4", "dummy",
           "sch_netem", "rdma_rxe", "ib_uverbs", "rdma_ucm"]


class Unavailable(Exception):
    """There is no guest to be had here, and why."""


def need(program):
    """Where it lies; many a user's PATH has no sbin."""
    path = shutil.which(program, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")
    if not path:
        raise Unavailable(f"{program} is not installed (scripts/setup vm)")
    return path


def run(program, *arguments, **options):
    """Its output; what it complained of is in the error."""
    command = (need(program), *arguments)
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout
    except subprocess.CalledProcessError as failed:
        said = " ".join((failed.stderr or failed.stdout).split())[-600:]  # a reason is one line of TAP
        raise Unavailable(f"{' '.join([program, *arguments[:1]])}: {said}") from failed


def sources(suite):
    """Lines of a sources.list: the suite, or this machine's own with its updates, from the mirrors it uses anyway."""
    own = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    # Not `apt-get indextargets`, which is empty before the first update.
    uris = run("apt-get", "update", "--print-uris")
    suites = rf"{re.escape(own)}(?:-updates|-security)?"
    mirrors = set(re.findall(rf"^'(\S+?)/dists/({suites})/main/binary-amd64/Packages", uris, re.M))
    if not mirrors:
        raise Unavailable("no Debian mirror among apt's sources")
    if suite == "own":
        return [f"deb {site} {release} main" for site, release in sorted(mirrors)]
    return [f"deb {site} {suite} main" for site, release in mirrors if release == own]


def fetch_kernel(folder, suite):
    """Unpacks the newest kernel package of the suite under `folder`, and returns the kernel's version."""
    lists = os.path.join(folder, "apt")
    os.makedirs(os.path.join(lists, "lists"))
    with open(os.path.join(lists, "sources"), "w", encoding="ascii") as out:
        out.write("\n".join(sources(suite)) + "\n")
    apt = ["-q", "-o", f"Dir::Etc::sourcelist={lists}/sources", "-o", "Dir::Etc::sourceparts=-",
           "-o", f"Dir::State::lists={lists}/lists", "-o", f"Dir::Cache={lists}", "-o", "APT::Sandbox::User=",
           "-o", "Acquire::Languages=none", "-o", "Acquire::Retries=3"]
    run("apt-get", "update", *apt, "-o", "APT::Update::Error-Mode=any")
    depends = run("apt-cache", "depends", *apt, "linux-image-amd64" + ("" if suite == "own" else "/" + suite))
    package = re.search(r"Depends: (linux-image-(\S+))", depends)
    if not package:
        raise Unavailable(f"no linux-image-amd64 in {suite}")
    run("apt-get", "download", *apt, package[1], cwd=folder)
    shutil.rmtree(lists)
    (deb,) = [name for name in os.listdir(folder) if name.endswith(".deb")]
    run("dpkg-deb", "-x", deb, "kernel", cwd=folder)
    os.unlink(os.path.join(folder, deb))
    run("depmod", "-b", os.path.join(folder, "kernel"), package[2])
    return package[2]


def unpack_kernel(bzimage, vmlinux):
    """The ELF image that a bzImage carries: to unpack it under emulation, at every boot, would take 6 s."""
    with open(bzimage, "rb") as f:
        body = f.read()
    # The boot protocol's header: where the payload lies, and how long it is. Its last four bytes are its plain length.
    (offset, length), sectors = struct.unpack_from("<II", body, 0x248), body[0x1F1]
    start = (sectors + 1) * 512 + offset
    packed = body[start:start + length - 4]
    if packed.startswith(b"\xfd7zXZ"):
        plain = lzma.decompress(packed)
    elif packed.startswith(b"\x28\xb5\x2f\xfd"):
        plain = subprocess.run([need("zstd"), "-dc"], input=packed, stdout=subprocess.PIPE, check=True).stdout
    else:
        raise Unavailable(f"{bzimage} is packed in a way that is not known here")
    with open(vmlinux, "wb") as out:
        out.write(plain)


def modules(folder, version):
    """The modules' files, each after those it depends on."""
    found = []
    for name in MODULES:
        lines = run("modprobe", "-d", os.path.join(folder, "kernel"), "-S", version, "--show-depends", name).splitlines()
        found += [line.split()[1] for line in lines if line.startswith("insmod")]
    return [path for path in dict.fromkeys(found) if "pclmul" not in path]


def make_initrd(folder, version, initrd):
    busybox, cpio = need("busybox"), need("cpio")
    with tempfile.TemporaryDirectory() as root:
        for name in ["bin", "dev", "guest", "host", "mods", "proc", "ram", "sys"]:
            os.mkdir(os.path.join(root, name))
        shutil.copy(busybox, os.path.join(root, "bin", "busybox"))
        shutil.copy(os.path.join(HERE, "init"), os.path.join(root, "init"))
        for i, path in enumerate(modules(folder, version)):
            with (lzma.open if path.endswith(".xz") else open)(path, "rb") as f:
                body = f.read()
            with open(os.path.join(root, "mods", f"{i:03}-{os.path.basename(path).split('.')[0]}.ko"), "wb") as out:
                out.write(body)
        names = "".join(os.path.relpath(os.path.join(at, name), root) + "\n"
                        for at, folders, files in os.walk(root) for name in folders + files)
        with open(initrd, "wb") as out:
            subprocess.run([cpio, "-o", "-H", "newc", "--quiet"], input=names.encode(), cwd=root, stdout=out, check=True)


def newer(path, than):
    return os.path.exists(path) and os.path.getmtime(path) > max(os.path.getmtime(p) for p in than)


def boot_files(suite):
    """(kernel, initrd) of a Debian suite; "own" is this machine's. Raises Unavailable."""
    if platform.machine() != "x86_64":
        raise Unavailable(f"the guest is x86_64, and this machine is {platform.machine()}")
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "penstock-vm")
    os.makedirs(cache, exist_ok=True)
    with open(os.path.join(cache, "lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = os.path.join(cache, suite)
        vmlinux, initrd, version = (os.path.join(folder, name) for name in ("vmlinux", "initrd", "version"))
        if not os.path.exists(version):
            shutil.rmtree(folder, ignore_errors=True)
            os.mkdir(folder)
            name = fetch_kernel(folder, suite)
            unpack_kernel(os.path.join(folder, "kernel", "boot", "vmlinuz-" + name), vmlinux)
            with open(version, "w", encoding="ascii") as out:
                out.write(name)
        if not newer(initrd, than=[__file__, os.path.join(HERE, "init"), version]):
            with open(version, encoding="ascii") as f:
                make_initrd(folder, f.read(), initrd + ".new")
            os.replace(initrd + ".new", initrd)
    return vmlinux, initrd
