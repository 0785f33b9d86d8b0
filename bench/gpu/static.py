#!/usr/bin/env python3
"""What the compiler says about the kernels of cuda/kernels/, without a GPU: one table for sm_80, sm_89 and sm_90.

    python3 bench/gpu/static.py build/release [--only PATTERN] [--all] [--folder build/static]

The argument is a configured build folder with CUDA. Its compile commands are run again for the three architectures, with
`ptxas -v`, and the machine code (SASS) of the objects is read. cuobjdump and nvdisasm belong to the CUDA toolkit; a toolkit
without them is completed by `pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm`. They are taken from PATH, from
/usr/local/cuda/bin or from the packages of this Python.

Columns, where a/b/c are sm_80, sm_89 and sm_90, and one figure is the same on all three:
  registers   of a thread
  spill       bytes stored and loaded because registers were too few
  shared      KiB of shared memory of a block, with the size that the launch asks for
  occupancy   share of the threads that a multiprocessor can hold, for the largest block that the kernel allows
  load, store instructions that access global memory, by bytes of a lane: "16 B x 4" are four instructions. Kernels with a path
              for addresses that are not aligned have instructions of both paths
  conflicts   "16-way 32/353": of 353 accesses to shared memory, 32 have conflicts, at worst of 16 lanes. An access with an
              address that is not known before the kernel runs is counted after "?" (see sass.py)
  tensor      share of tensor-core instructions in the inner loop that has most of them

Kernels of fp32 and fp16 are instances of the same sources; they are compiled and checked, and listed with --all only.

Exit code: 0, 1 where a kernel of a step in 16 bits spills registers, 2 where something is missing."""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig

sys.dont_write_bytecode = True

import sass  # noqa: E402

ARCHITECTURES = ["sm_80", "sm_89", "sm_90"]
# Of a multiprocessor: threads, blocks, KiB of shared memory. Every one has 65,536 registers. CUDA C++ Programming Guide,
# "Technical Specifications per Compute Capability".
LIMITS = {"sm_80": (2048, 32, 164), "sm_89": (1536, 24, 100), "sm_90": (2048, 32, 228)}
REGISTERS, WARP = 65536, 32
RESERVED_SHARED = 1024  # of each block, by the system


# Bytes of shared memory that a launch asks for, which the object does not contain: (pattern of the kernel, bytes for the size
# of a head). Rows of tiles have 8 elements more than columns. See Shared in the sources.
LAUNCHED_SHARED = [
    (r"attention_forward_tensor attend<false, (\d+)>", lambda head: 2 * (128 * (head + 8) + head * 72) + 4 * 64),
    (r"attention_forward_tensor attend<true, (\d+)>", lambda head: 2 * 192 * (head + 8) + 4 * 64),
    (r"attention_backward_tensor \w+<false, (\d+)>", lambda head: 2 * (192 * (head + 8) + 2 * head * 40) + 4 * 96),
    (r"attention_backward_tensor \w+<true, (\d+)>", lambda head: 2 * 192 * (head + 8) + 4 * 96)]


class Missing(Exception):
    pass


# ---- Compiling ----


def tool(name):
    places = [os.environ.get("PATH", ""), "/usr/local/cuda/bin"]
    places += map(str, pathlib.Path(sysconfig.get_paths()["purelib"]).glob("nvidia/*/bin"))
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        raise Missing(f"there is no {name}; pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm, and run this with that Python")
    return found


def compile_commands(build):
    """{source: command} of the kernels."""
    text = subprocess.run(["ninja", "-C", str(build), "-t", "commands", "ebb_cuda_kernels"], capture_output=True, text=True)
    commands = {}
    for line in text.stdout.splitlines():
        words = shlex.split(line)
        sources = [w for w in words if w.endswith(".cu") and "/cuda/kernels/" in w]
        if sources and "-c" in words:
            commands[pathlib.Path(sources[-1])] = words
    if not commands:
        raise Missing(f"{build} compiles no kernels: configure it with CUDA, as `cmake --preset release` does")
    return commands


def for_architectures(command, to):
    """The command with these architectures, ptxas's report, and the object in `to`."""
    words = [w for w in command if not w.startswith("--generate-code")]
    for option in ("-MD", "-MT", "-MF", "-o"):
        if option in words:
            at = words.index(option)
            del words[at:at + (1 if option == "-MD" else 2)]
    codes = [f"--generate-code=arch=compute_{a[3:]},code={a}" for a in ARCHITECTURES]
    return [*words, *codes, "-Xptxas=-v", "-o", str(to)]


def compile_one(source, command, build, folder):
    """The object and ptxas's report."""
    to = folder / f"{source.stem}.o"
    done = subprocess.run(for_architectures(command, to), cwd=build, capture_output=True, text=True)
    if done.returncode != 0:
        raise Missing(f"{source} does not compile:\n{done.stderr}")
    return to, done.stderr


# ---- Reading ----


def short_name(file, demangled):
    """attention_forward_tensor attend<128>"""
    name = re.sub(r"^void ", "", demangled)
    depth = 0
    for at, letter in enumerate(name):  # parameters begin at the first ( outside of < >
        depth += (letter == "<") - (letter == ">" and name[at - 1] != "-")
        if letter == "(" and depth == 0 and not name.startswith("(anonymous", at):
            name = name[:at]
            break
    name = re.sub(r"\(anonymous namespace\)::|\b_GLOBAL__N__\w+::|\bebb::(cuda::)?", "", name)
    return f"{file} {re.sub(r'[(]bool[)]|[(]int[)]', '', name)}"


def demangled(names):
    if not names:
        return {}
    out = subprocess.run([shutil.which("cu++filt") or tool("c++filt")], input="\n".join(names), capture_output=True, text=True)
    return dict(zip(names, out.stdout.splitlines()))


def ptxas_report(text):
    """{(architecture, mangled name): {registers, spill, shared}}"""
    found, key = {}, None
    for line in text.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)' for '(\w+)'", line):
            key = (match[2], match[1])
            found[key] = {"registers": 0, "spill": 0, "shared": 0}
        elif key and (match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line)):
            found[key]["spill"] += int(match[1]) + int(match[2])
        elif key and (match := re.search(r"Used (\d+) registers", line)):
            found[key]["registers"] = int(match[1])
            shared = re.search(r"(\d+) bytes smem", line)
            found[key]["shared"] = int(shared[1]) if shared else 0
            key = None
    return found


def largest_blocks(text):
    """{(architecture, mangled name): threads} of `cuobjdump -elf`: the bound that the source gives."""
    found = {}
    for part in re.split(r"^\s*arch = ", text, flags=re.MULTILINE)[1:]:
        architecture = part.split()[0]
        for name, info in re.findall(r"^\.nv\.info\.(\w+)\n(.*?)(?=^\.\w|\Z)", part, re.MULTILINE | re.DOTALL):
            bound = re.search(r"EIATTR_MAX_THREADS\s+Format:\s+\w+\s+Value:\s+(0x[0-9a-f]+)", info)
            found[architecture, name] = int(bound[1], 16) if bound else 1024
    return found


def launched_shared(name):
    for pattern, function in LAUNCHED_SHARED:
        if match := re.search(pattern, name):
            return function(*map(int, match.groups()))
    return 0


def occupancy(architecture, registers, shared, threads):
    most_threads, most_blocks, shared_kib = LIMITS[architecture]
    warps = -(-threads // WARP)
    by_registers = REGISTERS // (-(-registers * WARP // 256) * 256) // warps  # allocated in units of 256, for each warp
    by_shared = shared_kib * 1024 // (shared + RESERVED_SHARED)
    blocks = min(most_threads // (warps * WARP), by_registers, by_shared, most_blocks)
    return blocks * warps * WARP / most_threads


def is_of_16_bits(name):
    """Is it a kernel of a training step in 16 bits? Kernels of fp32 alone, and those of generation, are not."""
    types = set(re.findall(r"\bBF16\b|\bF16\b|\bfloat\b", name))
    return types != {"float"} and not name.startswith("attention_cached")


def describe(key, name, report, threads, instructions):
    shared = report["shared"] + launched_shared(name)
    accesses = sass.shared_accesses(instructions)
    return {"registers": report["registers"], "spill": report["spill"], "shared": f"{shared / 1024:.3g}",
            "occupancy": f"{100 * occupancy(key[0], report['registers'], shared, threads):.0f} %",
            "load": widths(sass.widths_of(instructions, "LDG")), "store": widths(sass.widths_of(instructions, "STG")),
            "conflicts": conflicts(accesses), "tensor": tensor(sass.tensor_share(instructions))}


def widths(counts):
    return ", ".join(f"{width} B x {counts[width]}" for width in sorted(counts, reverse=True))


def conflicts(accesses):
    if not accesses.conflicts and not accesses.unknown:
        return ""
    text = f"{accesses.worst}-way {accesses.num_conflicting}/{len(accesses.conflicts)}" if accesses.num_conflicting else "none"
    return text + (f" ?{accesses.unknown}" if accesses.unknown else "")


def tensor(share):
    return "" if share is None else f"{100 * share:.1f} %"


def read(source, built, folder):
    """{short name: {architecture: figures}} of one source."""
    object_file, report_text = built
    cuobjdump = tool("cuobjdump")
    os.environ["PATH"] += os.pathsep + str(pathlib.Path(tool("nvdisasm")).parent)

    def dump(what):
        done = subprocess.run([cuobjdump, what, str(object_file)], capture_output=True, text=True)
        if done.returncode != 0:
            raise Missing(f"cuobjdump {what} {object_file} failed: {done.stderr}")
        return done.stdout

    code, blocks = sass.functions_of(dump("-sass")), largest_blocks(dump("-elf"))
    reports = ptxas_report(report_text)
    names = demangled(sorted({name for _, name in reports}))
    table = {}
    for key, report in reports.items():
        name = short_name(source.stem, names[key[1]])
        table.setdefault(name, {})[key[0]] = describe(key, name, report, blocks.get(key, 1024), code[key])
    return table


# ---- Writing ----

COLUMNS = ["registers", "spill", "shared", "occupancy", "load", "store", "conflicts", "tensor"]


def cell(figures, column):
    values = [str(figures[a][column]) for a in ARCHITECTURES if a in figures]
    return values[0] if len(set(values)) == 1 else " / ".join(v or "none" for v in values)


def is_listed(name, figures, every):
    types = set(re.findall(r"\bBF16\b|\bF16\b|\bfloat\b", name))
    return every or not types or "BF16" in types or any(f["spill"] for f in figures.values())


def spills(table):
    return sorted(name for name, figures in table.items()
                  if is_of_16_bits(name) and any(f["spill"] for f in figures.values()))


def write(table, every, to):
    """Writes the table. Returns the exit code."""
    print("| kernel | " + " | ".join(COLUMNS) + " |", file=to)
    print("|---" * (len(COLUMNS) + 1) + "|", file=to)
    listed = [name for name in sorted(table) if is_listed(name, table[name], every)]
    for name in listed:
        print(f"| `{name}` | " + " | ".join(cell(table[name], c) for c in COLUMNS) + " |", file=to)
    print(f"\n{len(table)} kernels, of which {len(listed)} are listed; "
          f"{len(spills(table))} kernels of a step in 16 bits spill registers.", file=to)
    return 1 if spills(table) else 0


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="a configured build folder with CUDA")
    parser.add_argument("--only", metavar="PATTERN", default="", help="only sources whose names match [all]")
    parser.add_argument("--all", action="store_true", help="list kernels of fp32 and fp16 too")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/static"), help="of the objects [build/static]")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="compilations at once [cores]")
    options = parser.parse_args(arguments)
    commands = {s: c for s, c in compile_commands(options.build).items() if re.search(options.only, s.stem)}
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    tool("cuobjdump"), tool("nvdisasm")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        built = list(pool.map(lambda item: compile_one(*item, options.build, folder), commands.items()))
    table = {}
    for source, one in zip(commands, built):
        table |= read(source, one, folder)
    return write(table, options.all, sys.stdout)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Missing as problem:
        print(f"static.py: {problem}", file=sys.stderr)
        sys.exit(2)
