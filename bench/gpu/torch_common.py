"""What the benchmarks in PyTorch share: PyTorch itself, how they start, and how they time a call.

A script that imports this module ends with exit code 0 if this Python has no PyTorch: there is nothing to compare with.
"""

import pathlib
import statistics
import sys
import time

try:
    import torch
except ImportError as problem:
    print(f"{pathlib.Path(sys.argv[0]).stem}: this Python has no PyTorch: {problem}")
    sys.exit(0)

SAMPLES, SAMPLE_S = 7, 0.05


class Timer:
    def __init__(self, device):
        self.device = device

    def synchronize(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def once(self, call, times=1):
        """The mean time of `times` calls."""
        self.synchronize()
        start = time.perf_counter()
        for _ in range(times):
            call()
        self.synchronize()
        return (time.perf_counter() - start) / times

    def seconds(self, call):
        """The median time of a call. Each sample has enough calls to take SAMPLE_S seconds."""
        self.once(call, 3)
        times = max(1, int(SAMPLE_S / self.once(call))) if self.device == "cuda" else 1
        return statistics.median(self.once(call, times) for _ in range(SAMPLES if self.device == "cuda" else 1))


def begin(parser):
    """Parses the arguments, with --small. Returns them, a Timer, and a line that names PyTorch and the device. Ends the script
    with exit code 0 if it needs a GPU and there is none."""
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    if not options.small and not torch.cuda.is_available():
        print("no GPU: PyTorch sees none")
        sys.exit(0)
    name = "CPU" if options.small else torch.cuda.get_device_name()
    return options, Timer("cpu" if options.small else "cuda"), f"PyTorch {torch.__version__}, {name}"
