#!/usr/bin/env python3
"""check_includes.py finds each kind of forbidden #include, and none in a tree that follows the rules."""

import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import check_includes  # noqa: E402

LEGAL = {
    "system/clock.h": "#include <vector>\n",
    "device/device.h": "#include <vector>\n",
    "device/errors.h": "#include <string>\n",
    "device/host/inner.h": '#include "device/device.h"\n#include "system/clock.h"\n#include <tbb/task_arena.h>\n',
    "device/sim/sim_device.h": '#include "device/device.h"\n',
    "cuda/cuda.cpp": '#include "device/device.h"\n#include "system/clock.h"\n#include <cuda_runtime_api.h>\n',
    "cuda/cuda.h": "",
    "chunk/layout.h": '#include "device/device.h"\n',
    "chunk/home.h": "",
    "cpu_adam/adamw.h": '#include "device/device.h"\n#include "device/errors.h"\n',
    "comm/ranks.h": '#include "device/device.h"\n',
    "io/data.h": '#include "chunk/layout.h"\n',
    "autograd/tape.h": '#include "chunk/layout.h"\n#include "device/device.h"\n',
    "scheduler/plan/plan.h": '#include "chunk/layout.h"\n#include "autograd/tape.h"\n',
    "scheduler/search/prepare.h": '#include "scheduler/plan/plan.h"\n#include "device/sim/sim_device.h"\n',
    "scheduler/run/trainer.h": '#include "scheduler/search/prepare.h"\n#include "cpu_adam/adamw.h"\n',
    "model_zoo/gpt2.h": '#include "autograd/tape.h"\n#include "io/data.h"\n',
    "python/module.cpp": '#include "ebb/ebb.h"\n',
    "tools/cli.h": '#include "model_zoo/gpt2.h"\n',
    "tests/test.cpp": '#include "tools/cli.h"\n#include "device/host/inner.h"\n',
    "tests/cuda_emulation/grid.h": '#include "cuda/cuda.h"\n#include <cuda_runtime.h>\n',
    "tests/cuda_emulation/test.cpp": '#include "tests/cuda_emulation/grid.h"\n',
    "bench/bench.cpp": '#include "cpu_adam/adamw.h"\n',
    "examples/embed/main.cpp": "#include <ebb/ebb.h>\n",
    "examples/embed/kernels.cu": "#include <cuda_runtime.h>\n",
    "ebb/ebb.h": '#include "scheduler/run/trainer.h"\n',
}
PUBLIC = ["ebb/ebb.h", "scheduler/run/trainer.h", "scheduler/search/prepare.h", "cpu_adam/adamw.h", "chunk/layout.h",
          "device/device.h", "device/errors.h", "device/sim/sim_device.h", "scheduler/plan/plan.h", "autograd/tape.h"]

FORBIDDEN = [
    ("system/clock.h", '#include "device/device.h"'),
    ("device/device.h", '#include "system/clock.h"'),
    ("device/device.h", '#include "chunk/layout.h"'),
    ("device/device.h", '#include "device/host/inner.h"'),
    ("device/host/inner.h", '#include "cuda/cuda.h"'),
    ("device/host/inner.h", '#include "device/sim/sim_device.h"'),
    ("device/sim/sim_device.h", '#include "device/host/inner.h"'),
    ("chunk/layout.h", '#include "cpu_adam/adamw.h"'),
    ("chunk/layout.h", '#include "scheduler/plan/plan.h"'),
    ("cpu_adam/adamw.h", '#include "chunk/layout.h"'),
    ("cpu_adam/adamw.h", '#include "device/host/inner.h"'),
    ("comm/ranks.h", '#include "chunk/layout.h"'),
    ("cuda/cuda.cpp", '#include "chunk/layout.h"'),
    ("cuda/cuda.cpp", '#include "device/host/inner.h"'),
    ("io/data.h", '#include "scheduler/plan/plan.h"'),
    ("autograd/tape.h", '#include "chunk/home.h"'),
    ("autograd/tape.h", '#include "system/clock.h"'),
    ("autograd/tape.h", '#include "scheduler/plan/plan.h"'),
    ("scheduler/plan/plan.h", '#include "scheduler/search/prepare.h"'),
    ("scheduler/plan/plan.h", '#include "system/clock.h"'),
    ("scheduler/plan/plan.h", '#include "io/data.h"'),
    ("scheduler/plan/plan.h", '#include "ebb/ebb.h"'),
    ("scheduler/search/prepare.h", '#include "scheduler/run/trainer.h"'),
    ("scheduler/search/prepare.h", '#include "cpu_adam/adamw.h"'),
    ("scheduler/run/trainer.h", '#include "model_zoo/gpt2.h"'),
    ("scheduler/run/trainer.h", '#include "device/sim/sim_device.h"'),
    ("model_zoo/gpt2.h", '#include "chunk/layout.h"'),
    ("model_zoo/gpt2.h", '#include "tools/cli.h"'),
    ("python/module.cpp", '#include "tools/cli.h"'),
    ("tools/cli.h", '#include "tests/test.cpp"'),
    ("tools/cli.h", '#include "cuda/cuda.h"'),
    ("tests/test.cpp", '#include "cuda/cuda.h"'),
    ("tests/test.cpp", '  #  include <cuda/cuda.h>'),
    ("tests/test.cpp", "#include <cuda_runtime.h>"),
    ("tests/test.cpp", "#include <cublasLt.h>"),
    ("tests/cuda_emulation/grid.h", '#include "chunk/layout.h"'),
    ("tests/test.cpp", '#include "device/removed.h"'),
    ("ebb/ebb.h", '#include "device/host/inner.h"'),
    ("ebb/ebb.h", "#include <fmt/format.h>"),
    ("device/device.h", "#include <sys/mman.h>"),
    ("device/device.h", '#include "inner.h"'),
]


def violations(files):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return check_includes.forbidden_includes(root, PUBLIC)


class IncludeDirections(unittest.TestCase):
    def test_a_tree_that_follows_the_rules_passes(self):
        self.assertEqual(violations(LEGAL), [])

    def test_each_forbidden_include_is_found_and_named(self):
        for file, include in FORBIDDEN:
            with self.subTest(file=file, include=include):
                found = violations({**LEGAL, file: LEGAL[file] + "// first\n" + include + "\n"})
                line = (LEGAL[file] + "// first\n").count("\n") + 1
                self.assertEqual(len(found), 1, found)
                self.assertTrue(found[0].startswith(f"{file}:{line}: "), found)

    def test_a_file_that_belongs_to_no_module_is_named(self):
        found = violations({**LEGAL, "scheduler/stray.h": ""})
        self.assertEqual(found, ["scheduler/stray.h: belongs to no module"])

    def test_headers_that_are_only_installed_or_only_described_are_named(self):
        page = "| header | for what |\n| `io/a.h` | to read |\n| `io/b.h` | to write |\n"
        self.assertEqual(check_includes.not_described(page, ["io/a.h", "io/c.h"]), ["io/b.h", "io/c.h"])


if __name__ == "__main__":
    unittest.main()
