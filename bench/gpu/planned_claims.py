"""What claims.py --plan prints: the claims about large GPTs as the planner predicts them, without a GPU.

Three rates are compared: those that the machine file h200 had at commit 7d03729 (h200_7d03729.json, which stays as it is), and
the pessimistic and the optimistic ones of today's machine file. Each claim may divide its tokens into micro-batches as it likes,
so the fastest division counts.

"no more" is a value that no schedule exceeds with this memory and these rates (fastest_s() below). A claim that its own plan
misses, but that no schedule reaches either, needs another machine; what limits it is named.
"""

import dataclasses
import itertools
import json
import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
GIB = 1 << 30
LEVELS = ["none", "norms", "mlp", "attention", "layer"]  # values of --recompute, from the least to the most

# Bytes of the optimizer's state of a parameter: the weight, the rest of its fp32 master, two fp32 moments.
STATE_BYTES = 2 + 2 + 4 + 4
WEIGHT_BYTES = GRADIENT_BYTES = 2
SUM_BYTES = 4
UPDATE_BYTES = 2 * STATE_BYTES + GRADIENT_BYTES  # read and written
FORWARD_SHARE = 0.35  # of the compute time, at most: a third of the products, less of attention
PARTS = 400  # of the parameters, in the search for the limit
UNDO_BYTES = 1.15  # with clipping: of the undo log of an update that is made before the norm is known


@dataclasses.dataclass
class Claim:
    name: str
    model: str
    sequences: int  # of 2048 tokens in a step
    host: str
    device: str | None  # None: the whole GPU
    goal: float  # TFLOP/s; with a device budget, the share of the speed with the whole GPU


def claims():
    for host in ("256GiB", "124GiB"):
        for model in ("10B", "8B"):
            yield Claim("A", model, 16, host, "16GiB", 0.92)
    yield Claim("B", "14B", 32, "124GiB", None, 510)
    yield Claim("B", "14B", 32, "192GiB", None, 570)
    for model in ("19B", "17B"):
        for sequences in (16, 32):
            yield Claim("C", model, sequences, "124GiB", None, 500)


def divisions(sequences):
    """(sequences of a micro-batch, micro-batches)"""
    size = 1
    while size <= sequences:
        yield size, sequences // size
        size *= 2


class Planner:
    def __init__(self, ebb, model_folder):
        self.ebb, self.model_folder, self.known_costs = ebb, model_folder, {}

    def plan(self, model, machine, size, count, *flags):
        folder, clip = self.model_folder(model)
        command = [self.ebb, "plan", "--model", str(folder), "--init", "random", "--seq-length", "2048", "--clip", str(clip), "--machine",
                   machine, "--micro-batch-size", str(size), "--gradient-accumulation", str(count), *flags, "--json"]
        found = subprocess.run(command, capture_output=True, text=True)
        try:
            plan = json.loads(found.stdout)
        except json.JSONDecodeError:
            raise SystemExit(f"claims: {' '.join(command)}: {found.stderr.strip()}") from None
        plan |= {"micro_batch_size": size, "micro_batches": count}
        if plan["fits"]:
            plan["recompute_text"] = plan["candidates"][plan["chosen"]]["recompute"]
        return plan

    def fastest(self, claim, machine, device):
        """The plan of the fastest division; None if none fits."""
        budget = ["--device-memory", device] if device else []
        plans = [self.plan(claim.model, machine, size, count, "--host-memory", claim.host, *budget)
                 for size, count in divisions(claim.sequences)]
        return min((plan for plan in plans if plan["fits"]), key=lambda plan: plan["predicted_seconds"], default=None)

    def costs(self, model, machine, sequences):
        """In one micro-batch, with more memory than any plan uses."""
        if (model, machine, sequences) not in self.known_costs:
            plans = [self.plan_of_level(model, machine, sequences, level) for level in LEVELS]
            self.known_costs[model, machine, sequences] = Costs(plans, self.model_folder(model)[1] > 0)
        return self.known_costs[model, machine, sequences]


    def plan_of_level(self, model, machine, sequences, level):
        """With as much device memory as can be used before the device updates chunks, which would add to its work."""
        flags = ["--host-memory", "9000GiB", "--activations", "device", "--update", "overlap", "--recompute", level]
        full = self.plan(model, machine, sequences, 1, "--device-memory", "9000GiB", *flags)["full_device_bytes"]
        return self.plan(model, machine, sequences, 1, "--device-memory", str(full), *flags)


class Costs:
    """What the limit depends on, of the step of a model on a machine."""

    def __init__(self, plans, clips):
        self.parameters = plans[0]["parameters"]
        self.compute_s = plans[0]["stream_seconds"]["compute"]
        kept = [sum(layer["kept_bytes"] for layer in plan["layers"]) for plan in plans]
        added = [sum(layer["recompute_seconds"] for layer in plan["layers"]) for plan in plans]
        self.kept_bytes = kept[0]
        self.steps = convex_steps(kept, added)  # (bytes that are freed, seconds that they cost), cheapest first
        self.home_bytes = STATE_BYTES + (UNDO_BYTES if clips else 0)


def convex_steps(kept, seconds):
    """Steps from the first level to the last, each to the level that frees the most bytes for its time. Results of layers, which all
    levels keep, count as free to compute again: layers that run again together keep only some of them."""
    steps, at = [], 0
    while at + 1 < len(kept):
        to = min((i for i in range(at + 1, len(kept)) if kept[i] < kept[at]), default=None,
                 key=lambda i: (seconds[i] - seconds[at]) / (kept[at] - kept[i]))
        if to is None:
            break
        steps.append((kept[at] - kept[to], seconds[to] - seconds[at]))
        at = to
    return [*steps, (kept[at], 0)]


def recompute_s(steps, bytes_to_free):
    """The least time that frees so many bytes; infinite if that is not possible."""
    total = 0
    for freed, seconds in steps:
        if bytes_to_free <= 0:
            return total
        total += seconds * min(1, bytes_to_free / freed)
        bytes_to_free -= freed
    return total if bytes_to_free <= 1 else float("inf")


def fastest_s(costs, sequences, device_bytes, host_bytes, rates):
    """A time below that of every schedule, and the stream that takes it.

    The sequences run in `groups`: forward and backward of one, then of the next. Each stream works all the time, nothing but
    weights, gradients, state and activations takes memory, and every choice is made of parts as small as one likes:
    - a share of the parameters has its state on the device and is neither loaded nor stored; the other states are in host memory,
      with undo logs if gradients are clipped;
    - gradients take no memory: when most activations are in memory, at the beginning of a backward, none is finished;
    - a share of the remaining device memory contains weights that are still there when a backward begins; when a forward begins
      after a backward, all of it may contain weights;
    - between the groups, the fp32 sums of gradients are in device memory, or in host memory and are copied for each group;
    - activations of a group that have no place are offloaded as far as the host and the links allow, or recomputed. When the first
      backward begins, those of the first group have been stored; those of the last group are loaded after the last forward.
    """
    load, store = rates["load_bytes_per_s"], rates["store_bytes_per_s"]
    best = float("inf"), ""
    for part, groups, tenths, tenths_of_sums in itertools.product(range(PARTS), range(1, sequences + 1), range(11), range(11)):
        sums = costs.parameters * SUM_BYTES if groups > 1 else 0
        if tenths_of_sums > 0 and sums == 0:
            continue
        # From `on_host` to `most_on_host` parameters: the end of the range counts that leaves more memory or takes less time.
        on_host, most_on_host = (costs.parameters * (1 - i / PARTS) for i in (part + 1, part))
        host_free = host_bytes - on_host * costs.home_bytes
        device_free = device_bytes - (costs.parameters - most_on_host) * STATE_BYTES
        if device_free < 0:
            continue
        kept_sums = min(sums, device_free) * tenths_of_sums / 10
        device_free -= kept_sums
        host_free -= sums - kept_sums
        if host_free < 0:
            continue
        sum_copies = (groups - 1) * (sums - kept_sums)
        weights = on_host * WEIGHT_BYTES
        kept_weights = min(weights, device_free * tenths / 10)
        load_s = (sum_copies + weights + (groups - 1) * max(0, weights - device_free) + groups * (weights - kept_weights)) / load
        store_s = (sum_copies + on_host * GRADIENT_BYTES) / store
        update_s = on_host * UPDATE_BYTES / rates["update_bytes_per_s"]
        homeless = max(0, costs.kept_bytes / groups - (device_free - kept_weights))  # activations of a group

        def compute_s(offloaded):
            return costs.compute_s + recompute_s(costs.steps, (homeless - offloaded) * groups)

        def copies_s(offloaded):
            return max(load_s + groups * offloaded / load, store_s + groups * offloaded / store)

        def total_s(offloaded):
            compute, group_s = compute_s(offloaded), costs.compute_s / groups
            first_forward = max(0, offloaded / store - FORWARD_SHARE * group_s)  # the compute stream waits for
            last_backward = max(0, offloaded / load - compute / groups)
            return max((compute + first_forward + last_backward, "compute" if first_forward == 0 else "compute and stores"),
                       (copies_s(offloaded), "copies"), (update_s, "updates"))

        low, high = 0.0, min(homeless, host_free)
        if max(compute_s(high), copies_s(low), update_s) >= best[0]:
            continue
        for _ in range(30):  # the time is convex: more offloading means less to compute, but more to copy
            third = (high - low) / 3
            low, high = (low, high - third) if total_s(low + third) < total_s(high - third) else (low + third, high)
        best = min(best, total_s(low))
    return best


def gib(text):
    return float(text.removesuffix("GiB")) * GIB


def limit_of(planner, claim, machine):
    """fastest_s() of a claim."""
    budget = gib(claim.device) if claim.device else machine.rates["device_memory_bytes"]
    return fastest_s(planner.costs(claim.model, machine.file, claim.sequences), claim.sequences, budget, gib(claim.host), machine.rates)


def row(planner, claim, machine):
    """A line of the table."""
    text = (f"{claim.name:<3}{claim.model:<5}{claim.sequences * 2:>3}k{claim.device or 'all':>8}{claim.host:>8}  "
            f"{machine.name:<19}{goal_text(claim):>7}")
    ours = planner.fastest(claim, machine.file, claim.device)
    whole = planner.fastest(claim, machine.file, None) if claim.device else ours
    if ours is None or whole is None:
        return text + "  does not fit"
    limit_s, limited_by = limit_of(planner, claim, machine)
    if ours["predicted_seconds"] < limit_s:
        raise SystemExit(f"claims: an error in the limit: the plan takes {ours['predicted_seconds']:.4f} s, the limit {limit_s:.4f} s:{text}")
    reached, limit = (value_of(claim, ours, whole, seconds) for seconds in (ours["predicted_seconds"], limit_s))
    said = "met" if reached >= claim.goal else f"missed; no schedule reaches it, because of {limited_by}" if limit < claim.goal else "missed"
    shown = "{:>8.1%}{:>9.1%}" if claim.device else "{:>8.0f}{:>9.0f}"
    return text + shown.format(reached, limit) + f"  {ours['recompute_text']:<26} {said}"


def goal_text(claim):
    return f"{claim.goal:.0%}" if claim.device else f"{claim.goal:.0f}"


def value_of(claim, ours, whole, seconds):
    if claim.device:
        return whole["predicted_seconds"] / seconds
    return ours["tflops"] * ours["predicted_seconds"] / seconds


class Machine:
    """A machine file with one value for each rate."""

    def __init__(self, name, path, end, folder):
        """`end`: 0 takes the pessimistic value where there are two, 1 the optimistic one."""
        fields = json.loads(pathlib.Path(path).read_text())
        self.name, self.rates = name, {}
        for key, field in fields.items():
            if isinstance(field, dict):
                value = field["value"]
                self.rates[key] = field["value"] = value[end] if isinstance(value, list) else value
        self.file = str(folder / f"{name.replace(' ', '-')}.json")
        pathlib.Path(self.file).write_text(json.dumps(fields))


def show(ebb, names, model_folder, folder):
    """`model_folder(name)`: (folder of the model, clipping). `names`: the models to show. `folder`: for machine files."""
    today = HERE.parent.parent / "tools" / "machines" / "h200.json"
    machines = [Machine("h200 of 7d03729", HERE / "h200_7d03729.json", 0, folder), Machine("h200, pessimistic", today, 0, folder),
                Machine("h200, optimistic", today, 1, folder)]
    planner = Planner(ebb, model_folder)
    print(f"{'':3}{'':5}{'step':>4}{'device':>8}{'host':>8}  {'rates':<19}{'goal':>7}{'plan':>8}{'no more':>9}  recompute")
    for claim in claims():
        if claim.model not in names:
            continue
        for machine in machines:
            print(row(planner, claim, machine), flush=True)
