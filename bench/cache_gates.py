"""The gates of the cache: beside redis, memcached, and a pair of programs that only moves the bytes."""

import shutil
import subprocess
import tempfile

import servers
from stats import LEAST, MOST, median

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SPILLED_BYTES = 2 * GIB  # of blobs, whatever their size; a few slots of them are resident
FIO_MS = 2500


def blob_pair(b, server, dialect, what, blob, keys, depth, count, *more):
    return b.timed(server, b.program("blob_pair"), what, "--dialect", dialect, "--blob", str(blob), "--keys", str(keys),
                   "--depth", str(depth), "--count", str(count), *more, server.address)


def cache_bench(b, server, what, blob, keys, depth, count, *more):
    return b.timed(server, b.program("cache_bench"), what, "--blob", str(blob), "--keys", str(keys), "--depth",
                   str(depth), "--count", str(count), *more, server.address)


def cache(b):
    """Resident blobs, put and fetched: 64 keys of 1 MiB, 16 of 16 MiB."""
    for blob, keys, count, rivals in (MIB, 64, 3000, ("redis", "memcached")), (16 * MIB, 16, 200, ("redis",)):
        running = {"penstock": servers.start_cache_peer(b.penstock, f"{b.scratch}/cache-{blob}", b.congestion,
                                                        "--no-swap"),
                   "bare": servers.start_printing_port([b.program("blob_pair"), "serve", "--blob", str(blob), "--keys",
                                                        str(keys)])}
        for name in rivals:
            running[name] = getattr(servers, f"start_{name}")(f"{b.scratch}/{name}-{blob}", 4 * keys * blob)
        b.running += running.values()
        cache_bench(b, running["penstock"], "get", blob, keys, 1, 1, "--check")
        for depth in 1, 16:
            for what in "put", "get":
                moved(b, running, rivals, what, blob, keys, depth, count)
        for server in running.values():
            server.stop()
            b.running.remove(server)
    round_trip(b)


def moved(b, running, rivals, what, blob, keys, depth, count):
    def theirs(name):
        return lambda: blob_pair(b, running[name], name, what, blob, keys, depth, count)

    speed = {name: max(theirs(name)()["gb_s"] for _ in range(2)) for name in rivals}
    rival = max(speed, key=speed.get)
    title = f"{what} of {blob // MIB} MiB, {depth} under way: GB/s over "
    taken = b.in_turn({
        "penstock": lambda: cache_bench(b, running["penstock"], what, blob, keys, depth, count),
        "rival": theirs(rival),
        "bare": theirs("bare"),
        "rival again": theirs(rival),
        "bare again": theirs("bare"),
    })
    b.gate(title + rival, taken, "penstock", "rival", "gb_s", 1.0 if blob == MIB else 4.0, LEAST)
    bare = [{"penstock": t["penstock"], "rival": t["bare"], "rival again": t["bare again"]} for t in taken]
    if blob == MIB:
        b.gate(title + "a bare pair", bare, "penstock", "rival", "gb_s", 0.9, LEAST)


def round_trip(b):
    """EXISTS, which a peer answers as it answers GET where there are rails; the bare pair answers nine bytes with nine."""
    peer = servers.start_cache_peer(b.penstock, f"{b.scratch}/cache-ping", b.congestion, "--no-swap")
    bare = servers.start_printing_port([b.program("blob_pair"), "serve", "--blob", str(MIB), "--keys", "16"])
    b.running += [peer, bare]
    ping = lambda server, dialect: blob_pair(b, server, dialect, "ping", MIB, 16, 1, 30000)
    taken = b.in_turn({
        "penstock": lambda: ping(peer, "penstock"),
        "rival": lambda: ping(bare, "bare"),
        "rival again": lambda: ping(bare, "bare"),
    })
    b.gate("control round trip of the cache: median, us", taken, "penstock", "rival", "p50_us", 1.15, MOST)


def spilled(b):
    """Blobs that are on disk, beside fio reading the swap file in blocks of the same size, as many at once."""
    if not shutil.which("fio"):
        raise SystemExit("spilled needs fio: scripts/setup bench")
    for blob, count in (64 * KIB, 20000), (MIB, 3000), (16 * MIB, 300):
        directory = tempfile.mkdtemp(prefix="penstock-swap-", dir=b.disk)
        peer = servers.start_cache_peer(b.penstock, f"{b.scratch}/spilled-{blob}", b.congestion, "--swap-dir", directory)
        b.running.append(peer)
        try:
            for depth in 1, 16:
                spilled_at(b, peer, f"{directory}/kv-{blob}.swap", blob, depth, count)
        finally:
            peer.stop()
            b.running.remove(peer)
            shutil.rmtree(directory)


def spilled_at(b, peer, data, blob, depth, count):
    keys = SPILLED_BYTES // blob
    ours = lambda *more: cache_bench(b, peer, "get", blob, keys, depth, count, "--slots", "48", *more)
    ours()
    direct = "page cache" not in peer.log_text()
    fio = lambda engine: b.fio(data, blob, depth, engine, direct, SPILLED_BYTES, FIO_MS)
    speed = {engine: fio(engine)["gb_s"] for engine in ("io_uring", "libaio", "psync")}
    best = max(speed, key=speed.get)
    bare = servers.start_printing_port([b.program("blob_pair"), "serve", "--blob", str(blob), "--keys", str(keys),
                                        "--disk", data])
    b.running.append(bare)
    pair = lambda: blob_pair(b, bare, "bare", "get", blob, keys, depth, count, "--filled")
    pair()
    taken = b.in_turn({"penstock": lambda: ours("--filled"), "rival": lambda: fio(best), "bare": pair,
                       "rival again": lambda: fio(best)})
    bare.stop()
    b.running.remove(bare)
    # What is left of fio's rate where bytes are read and sent, and nothing else is done.
    over_fio = round(median(t["bare"]["gb_s"] / t["rival"]["gb_s"] for t in taken), 4)
    b.gate(f"get of {blob // KIB} KiB from disk, {depth} under way: GB/s", taken, "penstock", "rival", "gb_s", 0.8,
           LEAST, fio_engine=best, direct=direct, bare_pair_over_fio=over_fio)
