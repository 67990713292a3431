"""The two servers, each on a port of its own choice on loopback, with the same congestion control."""

import os
import re
import socket
import subprocess
import time

NGINX_CONF = """\
daemon off;
worker_processes {workers};
pid {dir}/nginx.pid;
error_log {dir}/error.log;
worker_rlimit_nofile 8192;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    sendfile on;
    {tuning}
    keepalive_requests 1000000;
    client_body_temp_path {dir}/t1; proxy_temp_path {dir}/t2; fastcgi_temp_path {dir}/t3;
    uwsgi_temp_path {dir}/t4; scgi_temp_path {dir}/t5;
    server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""


class Server:
    """A process and its children, and what they cost."""

    def __init__(self, process, port, log=None):
        self.process, self.port, self.log = process, port, log
        self.address = f"127.0.0.1:{port}"

    def pids(self):
        found = [self.process.pid]
        for pid in found:
            with open(f"/proc/{pid}/task/{pid}/children") as f:
                found += map(int, f.read().split())
        return found

    def cpu_s(self):
        """User and system time so far, threads that have ended included: the processes' own CPU clocks, to the ns."""
        return sum(time.clock_gettime(~pid << 3 | 2) for pid in self.pids())

    def rss_bytes(self):
        total = 0
        for pid in self.pids():
            with open(f"/proc/{pid}/status") as f:
                total += sum(int(line.split()[1]) * 1024 for line in f if line.startswith("VmRSS:"))
        return total

    def log_text(self):
        with open(self.log) as f:
            return f.read()

    def congestion(self):
        """What an accepted connection really runs with."""
        with socket.create_connection(("127.0.0.1", self.port)):
            out = subprocess.run(["ss", "-tinH", "sport", "=", f":{self.port}"], capture_output=True, text=True)
            names = re.findall(r"^\s+(?:ts sack |sack |ts )?(?:ecn \w* )?(\w+) wscale", out.stdout, re.M)
        return names[0] if names else "unknown"

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_nginx(root, scratch, congestion, workers, tuning=""):
    """nginx takes a listening socket from the NGINX variable, as it does when it replaces itself: so the socket, and
    with it TCP_CONGESTION and the port, are ours to make."""
    os.makedirs(scratch, exist_ok=True)
    os.chmod(scratch, 0o755)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    listener.listen(4096)
    port = listener.getsockname()[1]
    user = "user root;\n" if os.getuid() == 0 else ""
    with open(f"{scratch}/nginx.conf", "w") as f:
        f.write(user + NGINX_CONF.format(workers=workers, dir=scratch, port=port, root=root, tuning=tuning))
    process = subprocess.Popen(
        ["nginx", "-p", scratch, "-c", f"{scratch}/nginx.conf"],
        env={**os.environ, "NGINX": f"{listener.fileno()};"},
        pass_fds=[listener.fileno()],
        stderr=subprocess.DEVNULL,
    )
    listener.close()
    server = Server(process, port)
    _until(lambda: len(server.pids()) > 1, process, f"nginx (see {scratch}/error.log)")
    return server


def _start_peer(penstock, tier, scratch, congestion, *options):
    os.makedirs(scratch, exist_ok=True)
    log = f"{scratch}/penstock.log"
    with open(log, "w") as out:
        process = subprocess.Popen([penstock, "serve", f"--listen-{tier}", "127.0.0.1:0", "--congestion", congestion,
                                    *options], stderr=out, stdout=out)

    def port():
        with open(log) as f:
            found = re.search(rf"listening for {tier} on 127\.0\.0\.1:(\d+)", f.read())
        return found and int(found.group(1))

    return Server(process, _until(port, process, f"penstock serve (see {log})"), log)


def start_penstock(penstock, models, scratch, congestion):
    named = [part for name, directory in models.items() for part in ("--weights", f"{name}={directory}")]
    return _start_peer(penstock, "weights", scratch, congestion, *named)


def start_expert_peer(penstock, store, scratch, congestion):
    return _start_peer(penstock, "experts", scratch, congestion, "--experts", store)


def start_cache_peer(penstock, scratch, congestion, *options):
    return _start_peer(penstock, "cache", scratch, congestion, "--cache", *options)


def start_printing_port(command):
    """A program that prints its port first."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    return Server(process, int(process.stdout.readline()))


def start_expert_pair(program, how, stride, layers, congestion):
    return start_printing_port([program, "serve", "--how", how, "--congestion", congestion, "--stride", str(stride),
                                *layers])


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def _listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def start_redis(scratch, memory_bytes):
    """Nothing is written to disk."""
    os.makedirs(scratch, exist_ok=True)
    port = _free_port()
    process = subprocess.Popen(["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly",
                                "no", "--dir", scratch, "--maxmemory", str(memory_bytes)], stdout=subprocess.DEVNULL)
    return Server(process, _until(lambda: _listens(port) and port, process, "redis-server"))


def start_memcached(scratch, memory_bytes):
    """Items of up to 4 MiB. scratch stays empty."""
    port = _free_port()
    process = subprocess.Popen(["memcached", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-I", "4m", "-m",
                                str(memory_bytes >> 20), *(["-u", "root"] if os.getuid() == 0 else [])])
    return Server(process, _until(lambda: _listens(port) and port, process, "memcached"))


def _until(ready, process, what):
    for _ in range(600):
        got = ready()
        if got:
            return got
        if process.poll() is not None:
            break
        time.sleep(0.05)
    process.kill()
    process.wait()
    raise SystemExit(f"{what} did not start")
