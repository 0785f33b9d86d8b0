"""Reads SASS, the machine code of NVIDIA's GPUs, as `cuobjdump -sass` prints it: instructions, loops, widths of loads and
stores, and bank conflicts of shared memory.

Addresses of shared memory are computed for the 32 lanes of the first warp of a block: threadIdx.x = lane. Every basic block is
evaluated once, with the registers of the block from which it is reached first. A loop's address is thus that of its first turn.
What a launch decides (kernel arguments, block indices) is the same for all lanes; such a value is an unknown uniform, which
shifts all addresses alike and changes no conflict where it is a multiple of 4 bytes. What is loaded from memory is unknown.
An access whose address depends on an unknown is counted apart. Predicates are ignored: all lanes are taken to access."""

import dataclasses
import re

LANES = range(32)
UNIFORM = "uniform"  # the same unknown number on all lanes; None: any unknown
BANKS, WORD = 32, 4
MASK = 0xFFFFFFFF

LINE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;", re.MULTILINE)
REGISTER = re.compile(r"U?R(?:\d+|Z)\b")
WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}


@dataclasses.dataclass
class Instruction:
    address: int
    predicate: str
    opcode: str
    operands: list

    @property
    def base(self):
        return self.opcode.split(".")[0]

    @property
    def modifiers(self):
        return self.opcode.split(".")[1:]

    @property
    def width(self):
        """Bytes of a lane, for loads and stores."""
        return next((WIDTHS[m] for m in self.modifiers if m in WIDTHS), WORD)

    @property
    def target(self):
        """The address to which a branch goes, or None."""
        if self.base != "BRA" or not self.operands:
            return None
        last = self.operands[-1]
        return int(last, 16) if last.startswith("0x") else None


def parse(text):
    """The instructions of one function."""
    return [Instruction(int(address, 16), predicate or "", opcode, [o for o in operands.split(", ") if o])
            for address, predicate, opcode, operands in LINE.findall(text)]


def functions_of(text):
    """{(architecture, mangled name): instructions} of an object file."""
    found = {}
    for part in re.split(r"^\s*arch = ", text, flags=re.MULTILINE)[1:]:
        architecture = part.split()[0]
        for function in re.split(r"^\s*Function : ", part, flags=re.MULTILINE)[1:]:
            found[architecture, function.split()[0]] = parse(function)
    return found


def loops_of(instructions):
    """(first address, last address) of each loop: a branch backwards and what lies between."""
    return [(i.target, i.address) for i in instructions if i.target is not None and i.target < i.address]


def tensor_share(instructions):
    """The share of tensor-core instructions in the innermost loop that has most of them; None without tensor cores."""
    best = None
    tensor = [i.address for i in instructions if i.base == "HMMA"]
    loops = loops_of(instructions)
    for at in tensor:
        around = [loop for loop in loops if loop[0] <= at <= loop[1]]
        if not around:
            continue
        first, last = min(around, key=lambda loop: loop[1] - loop[0])
        body = [i for i in instructions if first <= i.address <= last and i.base != "NOP"]
        counted = sum(i.base == "HMMA" for i in body)
        if best is None or counted > best[0]:
            best = (counted, counted / len(body))
    return best and best[1]


def widths_of(instructions, base):
    """{bytes: number of instructions} of the loads (LDG) or stores (STG) of global memory."""
    counts = {}
    for i in instructions:
        if i.base == base:
            counts[i.width] = counts.get(i.width, 0) + 1
    return counts


# ---- Bank conflicts ----


def conflict(addresses, width):
    """How often the worst bank is read for one part of an access: 1 without a conflict. A part is 128 bytes: all lanes, half
    of them for 8 bytes a lane, a quarter for 16 bytes. Lanes that access the same word do not conflict."""
    lanes_a_part = 32 * WORD // max(width, WORD)
    worst = 1
    for first in range(0, len(addresses), lanes_a_part):
        words = {a // WORD + k for a in addresses[first:first + lanes_a_part] for k in range(max(1, width // WORD))}
        banks = [0] * BANKS
        for word in words:
            banks[word % BANKS] += 1
        worst = max(worst, *banks)
    return worst


@dataclasses.dataclass
class SharedAccesses:
    conflicts: dict  # {address of the instruction: n of an n-way conflict}
    unknown: int = 0

    @property
    def worst(self):
        return max(self.conflicts.values(), default=0)

    @property
    def num_conflicting(self):
        return sum(n > 1 for n in self.conflicts.values())


def shared_accesses(instructions):
    found = SharedAccesses({})
    for i, registers in evaluated(instructions):
        if i.base not in ("LDS", "STS", "LDSM"):
            continue
        place = next(o for o in i.operands if "[" in o)
        address = address_of(place, registers)
        if address is None:
            found.unknown += 1
            continue
        lanes = list(address) if isinstance(address, tuple) else [0 if address is UNIFORM else address] * 32
        if i.base == "LDSM":  # eight lanes have the addresses of the rows of one matrix
            matrices = next(int(m) for m in reversed(i.modifiers) if m in ("1", "2", "4"))
            lanes, width = lanes[:8 * matrices], 16
        else:
            width = i.width
        found.conflicts[i.address] = max(found.conflicts.get(i.address, 0), conflict(lanes, width))
    return found


def address_of(place, registers):
    total = 0
    for sign, term in re.findall(r"([+-]?)([^+\-\[\]]+)", place[place.rindex("["):]):
        name, _, factor = term.partition(".X")
        value = value_of(name.split(".")[0], registers)
        if factor:
            value = combine(value, int(factor), 0, lambda a, b, c: a * b, is_product=True)
        total = combine(total, value, 0, lambda a, b, c: a - b if sign == "-" else a + b)
    return total


def evaluated(instructions):
    """Yields each reachable instruction once, with the registers before it. The dictionary is changed afterwards."""
    index = {i.address: n for n, i in enumerate(instructions)}
    relevant = address_registers(instructions)
    visited, todo = set(), [(0, {})]
    while todo:
        at, registers = todo.pop()
        while at < len(instructions) and at not in visited:
            visited.add(at)
            i = instructions[at]
            yield i, registers
            if i.base == "EXIT" and not i.predicate:
                break
            if i.target in index:
                if not i.predicate and len(i.operands) == 1:
                    at = index[i.target]
                    continue
                todo.append((index[i.target], dict(registers)))
            elif i.base in ("RET", "BRX"):
                break
            if any(d in relevant for d in destinations(i)):
                execute(i, registers)
            at += 1


def destinations(i):
    if not i.operands or i.base in ("STS", "STG", "BRA", "RET", "BAR", "BSSY", "BSYNC", "EXIT", "RED"):
        return []
    first = i.operands[0].split(".")[0]
    if not REGISTER.fullmatch(first) or first.endswith("Z"):
        return []
    prefix, number = re.fullmatch(r"(U?R)(\d+)", first).groups()
    if "WIDE" in i.modifiers or "64" in i.modifiers or i.base == "CS2R":
        count = 2
    elif "128" in i.modifiers:
        count = 4
    elif i.base == "LDSM":
        count = next(int(m) for m in reversed(i.modifiers) if m in ("1", "2", "4"))
    elif i.base == "HMMA":
        count = 4
    else:
        count = 1
    return [f"{prefix}{int(number) + k}" for k in range(count)]


def address_registers(instructions):
    """The registers from which addresses of shared memory are computed."""
    needed, writers = set(), {}
    for i in instructions:
        for d in destinations(i):
            writers.setdefault(d, []).append(i)
    todo = [r for i in instructions if i.base in ("LDS", "STS", "LDSM")
            for o in i.operands if "[" in o for r in REGISTER.findall(o)]
    while todo:
        register = todo.pop()
        if register in needed:
            continue
        needed.add(register)
        for i in writers.get(register, []):
            if i.base not in ("LDS", "LDG", "LD", "LDSM"):
                todo += [r for o in i.operands[1:] for r in REGISTER.findall(o)]
    return needed


def value_of(operand, registers):
    """An int (the same on all lanes), a tuple of 32 ints, UNIFORM or None."""
    sign = operand[0] if operand[0] in "-~|" else ""
    name = operand.lstrip("-~|").rstrip("|")
    for suffix in (".reuse", ".H0_H0", ".64"):
        name = name.removesuffix(suffix)
    if name.startswith("0x"):
        value = int(name, 16)
    elif name.isdigit():
        value = int(name)
    elif name in ("RZ", "URZ", "SRZ"):
        value = 0
    elif name.startswith(("c[", "cx[")):
        value = UNIFORM
    elif REGISTER.fullmatch(name):
        value = registers.get(name)
    else:
        return None
    if sign == "-":
        return combine(value, 0, 0, lambda a, b, c: -a)
    return combine(value, 0, 0, lambda a, b, c: ~a) if sign == "~" else value


def combine(a, b, c, f, is_product=False):
    """f of the lanes. An unknown uniform counts as 0 beside lanes that differ, but not as a factor or a shift."""
    if a is None or b is None or c is None:
        return None
    varies = any(isinstance(x, tuple) for x in (a, b, c))
    if not varies:
        return UNIFORM if UNIFORM in (a, b, c) else signed(f(a, b, c))
    if is_product and UNIFORM in (a, b) and (isinstance(a, tuple) or isinstance(b, tuple)):
        return None
    lanes = [[0] * 32 if x is UNIFORM else list(x) if isinstance(x, tuple) else [x] * 32 for x in (a, b, c)]
    return tuple(signed(f(*three)) for three in zip(*lanes))


def signed(x):
    x &= MASK
    return x - (1 << 32) if x >> 31 else x


def look_up(a, b, c, table):
    result = 0
    for bit in range(8):
        if table >> bit & 1:
            result |= (a if bit & 4 else ~a) & (b if bit & 2 else ~b) & (c if bit & 1 else ~c)
    return result


def is_predicate(operand):
    return re.fullmatch(r"!?U?P(T|\d+)", operand) is not None


def execute(i, registers):
    sources = [o for o in i.operands[1:] if not is_predicate(o)]
    result = result_of(i, sources, [value_of(s, registers) for s in sources])
    first, *others = destinations(i)
    registers[first] = result
    for register in others:  # the upper half of 64 bits, or neighbours that are loaded together
        registers[register] = result if result in (UNIFORM, 0) else None


def result_of(i, sources, values):
    """The value of the first destination. None where it, or what the instruction does, is unknown."""
    base, modifiers = i.base.removeprefix("U"), i.modifiers
    if base in ("S2R", "S2UR"):
        return tuple(LANES) if sources[0] in ("SR_TID.X", "SR_LANEID") else UNIFORM
    if base == "CS2R":
        return 0 if sources[0] == "SRZ" else UNIFORM
    if base == "LDC":
        return UNIFORM
    if base in ("MOV", "R2UR"):
        return values[0]
    if base in ("IADD3", "IADD", "VIADD"):
        values += [0] * (3 - len(values))
        return combine(*values[:3], lambda a, b, c: a + b + c)
    if base == "IMAD":
        a, b, c = values[:3]
        product = combine(a, b, 0, lambda a, b, c: a * b, is_product=True)
        if "HI" in modifiers:
            return combine(a, b, 0, lambda a, b, c: (a & MASK) * (b & MASK) >> 32, is_product=True)
        return combine(product, c, 0, lambda a, b, c: a + b)
    if base == "LEA":
        if "HI" in modifiers:
            if sources[2] not in ("RZ", "URZ"):
                return None
            arithmetic = "SX32" in modifiers
            return combine(values[0], values[1], values[3],
                           lambda a, b, s: ((a if arithmetic else a & MASK) >> (32 - (s & 31))) + b)
        return combine(values[0], values[1], values[2], lambda a, b, s: (a << (s & 31)) + b)
    if base == "SHF":
        low, shift, high = values[:3]
        if "L" in modifiers:
            return combine(low, shift, 0, lambda a, s, c: a << (s & 31), is_product=True) if "HI" not in modifiers else None
        if sources[0] not in ("RZ", "URZ") or "HI" not in modifiers:
            return None
        arithmetic = "S32" in modifiers
        return combine(high, shift, 0, lambda a, s, c: (a if arithmetic else a & MASK) >> (s & 31), is_product=True)
    if base == "LOP3":
        table = int(sources[3], 16)
        return combine(*values[:3], lambda a, b, c: look_up(a, b, c, table))
    if base == "PRMT":
        if not isinstance(values[1], int):
            return None
        selector = values[1]

        def permuted(a, _, b):
            both = (a & MASK) | (b & MASK) << 32
            result = 0
            for k in range(4):
                chosen = selector >> 4 * k & 15
                byte = both >> 8 * (chosen & 7) & 255
                result |= (255 * (byte >> 7) if chosen & 8 else byte) << 8 * k
            return result

        return combine(values[0], 0, values[2], permuted)
    if base == "SEL":
        return values[0] if values[0] is not None else values[1]
    if base in ("IMNMX", "VIMNMX"):
        smaller = "!PT" not in i.operands and "!UPT" not in i.operands
        if UNIFORM in values[:2]:
            return next((v for v in values[:2] if isinstance(v, tuple)), UNIFORM)
        return combine(values[0], values[1], 0, lambda a, b, c: min(a, b) if smaller else max(a, b))
    return None

