#!/usr/bin/env python3
"""instructions.py PROGRAM

Counts, with callgrind, the client's own instructions from a list of ranges to its last completion, on a device that
costs nothing. One JSON object a list on stdout; exit status 1 where one is above its gate. The count is the same in
every run of one build."""

import json
import re
import subprocess
import sys

MOST = 1000

# Collecting begins and ends with the calls that plan and move, and pauses in the device's.
TOGGLES = ["client_split_make", "rail_engine_submit", "rail_engine_poll", "free_device_post", "free_device_poll"]


def count(program, name):
    run = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *(f"--toggle-collect={t}" for t in TOGGLES),
         program, name], capture_output=True, text=True, check=False)
    collected = re.search(r"Collected\s*:\s*(\d+)", run.stderr)
    if run.returncode != 0 or not collected:
        sys.exit(f"{program} {name} under valgrind: status {run.returncode}\n{run.stderr}")
    return int(collected[1]), json.loads(run.stdout)


def main():
    missed = False
    # Where ranges are joined there are many in a work request, and a range is what costs.
    for name, unit, words in (("objects", "work_requests", "a work request, 4 KiB objects scattered"),
                              ("random", "ranges", "a range, tensors in random order"),
                              ("file", "ranges", "a range, tensors in file order")):
        instructions, row = count(sys.argv[1], name)
        each = instructions / row[unit]
        met = 0 < each <= MOST
        missed = missed or not met
        print(json.dumps({"name": f"instructions {words}", "gate": MOST, "sense": "at most", "median": round(each, 1),
                          "met": met, "met_outright": met, "instructions": instructions, **row}))
    sys.exit(missed)


if __name__ == "__main__":
    main()
