"""How far below first come, first served the mean latency can be while the tail is no longer than its.

usage: mean_and_tail.py [SEEDS]        (needs scipy; half a minute for three seeds)

The relQueries of loadgen/scenarios/paper-60m.toml, drawn as loadgen draws them, on one processor that takes any order
and changes at any time: a relQuery is an arrival and seconds of work. That is less than a server is (rows share steps,
what runs is not taken back, nobody knows an answer's length), so what is impossible here is impossible there at the
same speed, and what is possible here need not be there. Work: 90 us of a prompt token that no cache has, 78 of them a
row, and 475 us of an output token, the costs of `60M bf16 CPU` of sim/examples/fleet_order.rs with 64 rows a step;
seed 1 is 82 s of work, which a vLLM on two cores did in 71 to 76 s. The load is arrivals in work per second.

Each cell is the mean of FCFS over the mean of the order, the mean of the seeds; with @, its 99th percentile (nearest
rank) over FCFS's. Columns:

  SRPT         least remaining work first: no order has a lower mean, whatever its tail.
  max, at most     no order whose longest latency is at most FCFS's can be above this: a linear program over slots of
                   time, of the mean of the times at which a relQuery is worked on, half of its work before its end.
  max, reached     least remaining work first for as long as all that is here can still be done in time; the longest
                   latency is known from the beginning.
  p99, at most     the linear program, in which one of a hundred relQueries, or parts of several, has no deadline.
  p99, reached     the same order for the best choice of the one; known from the beginning, so not by a server.
  T/L          what the scheduler does (scheduler/src/tail.rs, tail_permille_max = T, late_permille_max = L), which knows
               what has come, with exact works and no other age.
"""

import heapq
import math
import sys

import numpy
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

RELQUERIES = 100
ROWS = (1, 100)
OUTPUTS = (5, 10, 5, 50, 100)
ROW_SECONDS = 78 * 90e-6
OUTPUT_SECONDS = 475e-6
LOADS = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5)
# Of the linear program, s. Work counts at the beginning of its slot, so that the bound stays one.
SLOT = 0.25
# What is shorter is rounding, s.
NOTHING = 1e-9
# scheduler/src/tail.rs
WINDOW = 128
LOOKS = (64, 8)
GAINED = 16
SETTINGS = ((1_000, 0), (1_250, 0), (1_500, 0), (1_000, 10), (1_250, 10), (1_500, 10))
BITS = (1 << 64) - 1


class Draws:
    """loadgen/src/random.rs"""

    def __init__(self, seed, purpose):
        mixed = 0xCBF29CE484222325
        for byte in purpose.encode():
            mixed = ((mixed ^ byte) * 0x100000001B3) & BITS
        self.state = seed ^ mixed
        self.next()

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & BITS
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & BITS
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & BITS
        return z ^ (z >> 31)

    def unit(self):
        return (self.next() >> 11) / (1 << 53)

    def between(self, low, high):
        return low + ((self.next() * (high - low + 1)) >> 64)


def draw(seed, load):
    """Arrival and work of each relQuery (loadgen/src/arrival.rs, workload.rs), s."""
    arrivals, sizes, kinds, lengths = (Draws(seed, of) for of in ("arrivals", "sizes", "kinds", "lengths"))
    jobs, at = [], 0.0
    for _ in range(RELQUERIES):
        at -= math.log(1 - arrivals.unit())
        task = kinds.between(0, len(OUTPUTS) - 1)
        kinds.between(0, 0)  # the table
        rows = sizes.between(*ROWS)
        output = lengths.between(1, OUTPUTS[task])
        jobs.append((at, rows * (ROW_SECONDS + output * OUTPUT_SECONDS)))
    mean = sum(work for _, work in jobs) / RELQUERIES
    return [(at * mean / load, work) for at, work in jobs]


def percentile(latencies):
    return sorted(latencies)[math.ceil(0.99 * len(latencies)) - 1]


def in_order_of_arrival(jobs):
    now, latencies = 0.0, []
    for arrival, work in jobs:
        now = max(now, arrival) + work
        latencies.append(now - arrival)
    return latencies


def by_remaining_work(jobs):
    """SRPT."""
    ends, left, now, coming = {}, [], 0.0, 0
    while len(ends) < len(jobs):
        if not left:
            now = max(now, jobs[coming][0])
        while coming < len(jobs) and jobs[coming][0] <= now:
            heapq.heappush(left, (jobs[coming][1], coming))
            coming += 1
        work, one = heapq.heappop(left)
        until = jobs[coming][0] if coming < len(jobs) else math.inf
        if now + work <= until:
            now += work
            ends[one] = now
        else:
            heapq.heappush(left, (work - (until - now), one))
            now = until
    return [ends[one] - jobs[one][0] for one in range(len(jobs))]


def within(jobs, bound, exempt):
    """SRPT while everybody can still be done `bound` after its arrival, but those that are `exempt`."""
    ends, left, now, coming = {}, {}, 0.0, 0
    while len(ends) < len(jobs):
        if not left:
            now = max(now, jobs[coming][0])
        while coming < len(jobs) and jobs[coming][0] <= now:
            left[coming] = jobs[coming][1]
            coming += 1
        # Time to spare of each, when all that came before it is done first: later ones have later deadlines.
        spare, ahead, late = {}, 0.0, None
        for one in (one for one in sorted(left) if one not in exempt):
            ahead += left[one]
            spare[one] = jobs[one][0] + bound - now - ahead
            if spare[one] <= NOTHING:
                late = one
                break
        may = [one for one in spare if one <= late] if late is not None else list(left)
        one = min(may, key=lambda one: (left[one], one))
        # Until somebody comes, it is done, or one before it has no time to spare any more.
        step = min(left[one], (jobs[coming][0] if coming < len(jobs) else math.inf) - now)
        passed = [spare[other] for other in spare if one in exempt or other < one]
        step = max(min([step] + [time for time in passed if time > NOTHING]), NOTHING)
        now += step
        left[one] -= step
        if left[one] <= NOTHING:
            ends[one] = now
            del left[one]
    return [ends[one] - jobs[one][0] for one in range(len(jobs))]


class TailBound:
    """scheduler/src/tail.rs for one class, at a pace of one."""

    def __init__(self, permille, late_permille):
        self.permille, self.late_permille = permille, late_permille
        self.longest, self.relqueries, self.came, self.next = [0.0, 0.0], 0, 0, 0.0
        self.overdue, self.exempt, self.until = {}, set(), None

    def arrived(self, is_first):
        self.came += 1
        self.relqueries += 1
        if is_first:
            self.next = 0.0
        if self.relqueries > WINDOW:
            self.longest, self.relqueries = [self.longest[1], 0.0], 0

    def choose_exempt(self, now, bound, jobs, left):
        self.exempt = set()
        if self.late_permille == 0:
            return
        allowed = max(1, min(self.came, 2 * WINDOW) * self.late_permille // 1_000)
        age = {one: now - jobs[one][0] for one in left}
        enough = bound + bound / GAINED
        for one in (one for one in left if age[one] > enough):
            self.overdue[one] = (self.overdue.get(one, (self.came, 0))[0], age[one])
        counts = lambda then, oldest: self.came - then <= 2 * WINDOW and oldest > enough
        self.overdue = {one: seen for one, seen in self.overdue.items() if counts(*seen)}
        ended = sum(one not in left for one in self.overdue)
        largest = sorted(left, key=lambda one: (age[one] >= bound, left[one], -one), reverse=True)
        self.exempt = set(largest[: max(0, allowed - ended)])

    def look(self, now, jobs, left):
        before, self.until = self.until, None
        self.longest[1] = max(self.longest[1], sum(left.values()))
        bound = max(self.longest) * self.permille / 1_000
        self.choose_exempt(now, bound, jobs, left)
        ahead, least = 0.0, bound
        for one in (one for one in sorted(left) if one not in self.exempt):
            ahead += left[one]
            spare = max(0.0, jobs[one][0] + bound - now - ahead)
            if spare <= (bound / GAINED if before is not None and one <= before else 0.0):
                self.until, least = one, 0.0
                break
            least = min(least, spare)
        self.next = now + max(min(max(least, bound / LOOKS[0]), bound / LOOKS[1]), 1e-3)

    def is_late(self, one):
        return self.until is not None and one <= self.until and one not in self.exempt


def as_the_scheduler(jobs, permille, late_permille):
    tail = TailBound(permille, late_permille)
    ends, left, now, coming = {}, {}, 0.0, 0
    while len(ends) < len(jobs):
        if not left:
            now = max(now, jobs[coming][0])
        while coming < len(jobs) and jobs[coming][0] <= now + NOTHING:
            tail.arrived(not left)
            left[coming] = jobs[coming][1]
            coming += 1
        if now >= tail.next - NOTHING:
            tail.look(now, jobs, left)
        one = min(left, key=lambda one: (not tail.is_late(one), left[one], one))
        until = jobs[coming][0] if coming < len(jobs) else math.inf
        step = min(left[one], until - now, max(tail.next - now, 1e-6))
        now += step
        left[one] -= step
        if left[one] <= NOTHING:
            ends[one] = now
            del left[one]
    return [ends[one] - jobs[one][0] for one in range(len(jobs))]


def least_mean(jobs, bound, exempt):
    """No order has a lower mean in which all but `exempt` relQueries are done `bound` after their arrival.

    Whatever the order, a relQuery ends at least half of its work after the mean of the times at which it is worked on.
    Variables: the seconds of each relQuery in each slot, and how much of it may be late.
    """
    end = max(arrival + latency for (arrival, _), latency in zip(jobs, in_order_of_arrival(jobs)))
    slots = numpy.arange(0.0, end, SLOT)
    cost, slot, owner, is_late = [], [], [], []
    for number, (arrival, work) in enumerate(jobs):
        may = numpy.arange(int(arrival / SLOT), len(slots))
        if not exempt:
            may = may[slots[may] < arrival + bound]
        slot.append(may)
        cost.append(numpy.maximum(slots[may], arrival) / work)
        owner.append(numpy.full(len(may), number))
        is_late.append(slots[may] >= arrival + bound)
    slot, owner, is_late, cost = map(numpy.concatenate, (slot, owner, is_late, cost))
    places, count, late = numpy.arange(len(slot)), len(jobs), numpy.flatnonzero(is_late)
    own, works = numpy.arange(count), numpy.array([work for _, work in jobs])
    # Of each slot, of what is late of each relQuery, and of how many are late.
    row = numpy.concatenate([slot, len(slots) + owner[late], len(slots) + own, numpy.full(count, len(slots) + count)])
    column = numpy.concatenate([places, late, len(slot) + own, len(slot) + own])
    value = numpy.concatenate([numpy.ones(len(slot) + len(late)), -works, numpy.ones(count)])
    size = (len(slots) + count + 1, len(slot) + count)
    found = linprog(
        numpy.concatenate([cost, numpy.zeros(count)]),
        A_ub=coo_matrix((value, (row, column)), shape=size).tocsr(),
        b_ub=numpy.concatenate([numpy.full(len(slots), SLOT), numpy.zeros(count), [exempt]]),
        A_eq=coo_matrix((numpy.ones(len(slot)), (owner, places)), shape=(count, size[1])).tocsr(),
        b_eq=works,
        bounds=[(0, None)] * len(slot) + [(0, 1)] * count,
        method="highs",
    )
    if found.status != 0:
        raise RuntimeError(found.message)
    return (found.fun + sum(work / 2 - arrival for arrival, work in jobs)) / count


def cells(jobs):
    """Of one seed: each cell's two numbers, none where it has no second."""
    fcfs = in_order_of_arrival(jobs)
    mean, p99, longest = sum(fcfs) / len(jobs), percentile(fcfs), max(fcfs)
    cell = lambda latencies: (mean * len(jobs) / sum(latencies), percentile(latencies) / p99)
    one_exempt = (within(jobs, p99, {one}) for one in range(len(jobs)))
    kept = [latencies for latencies in one_exempt if percentile(latencies) <= p99 + 1e-6]
    exempt = len(jobs) - math.ceil(0.99 * len(jobs))
    return [
        (mean, None),
        (p99, None),
        cell(by_remaining_work(jobs)),
        (mean / least_mean(jobs, longest, 0), None),
        cell(within(jobs, longest, set())),
        (mean / least_mean(jobs, p99, exempt), None),
        cell(min(kept, key=sum)),
    ] + [cell(as_the_scheduler(jobs, *setting)) for setting in SETTINGS]


def main():
    seeds = range(1, 1 + int(sys.argv[1] if len(sys.argv) > 1 else 3))
    settings = "".join(f" {permille}/{late} |" for permille, late in SETTINGS)
    print(
        "| load | FCFS mean s | p99 s | SRPT | max, at most | max, reached | p99, at most | p99, reached |" + settings
    )
    print("| ---: |" + " ---: |" * (7 + len(SETTINGS)))
    for load in LOADS:
        of_seeds = [cells(draw(seed, load)) for seed in seeds]
        line = f"| {load} |"
        for column in zip(*of_seeds):
            first, second = zip(*column)
            line += f" {sum(first) / len(first):.2f}"
            line += "" if None in second else f" @ {sum(second) / len(second):.2f}"
            line += " |"
        print(line, flush=True)


if __name__ == "__main__":
    main()
