"""The machine that gpu_check runs on: its GPU and tools, and the flags that CMake needs for them."""

import functools
import os
import pathlib
import re
import shutil
import subprocess

import vendor


# cuDNN compiles kernels with NVRTC.
OPENED_AT_RUN_TIME = {"cuBLAS": "libcublasLt.so.*", "cuDNN": "libcudnn.so.*", "NVRTC": "libnvrtc.so.*"}


class Unfit(Exception):
    """A tool is missing. The message names the tool and where to get it."""


class Machine:
    def __init__(self, options, root):
        self.options, self.root = options, root
        # A build folder, or the unpacked programs of `gpu_check pack`, which lie in the same folders as in a build folder.
        self.programs = options.folder / "build"
        self.packed = not (self.programs / "build.ninja").exists() and options.programs_archive.exists()
        if self.packed:
            self.programs = vendor.unpack_programs(options.programs_archive, options.folder, root)
        self.gpu = first_line("nvidia-smi", "--query-gpu=name,memory.total,driver_version,compute_cap",
                              "--format=csv,noheader")
        self.cmake, self.ninja, self.compiler = find("cmake"), find("ninja"), find(os.environ.get("CXX", "c++"))
        self.nvcc = find("nvcc", "/usr/local/cuda/bin")
        self.prefix = vendor.unpack(options.archive, options.folder / "libraries")

    def has_gpu(self):
        return self.gpu is not None

    def architecture(self):
        if self.options.architecture:
            return self.options.architecture
        if self.gpu is None:
            raise Unfit("nvidia-smi names no GPU; to compile for another GPU, add --architecture 90")
        return self.gpu.split(",")[-1].strip().replace(".", "")

    def configure_command(self):
        command = [self.cmake, "-S", str(self.root), "-B", str(self.programs), "-G", "Ninja",
                   "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_MAKE_PROGRAM={self.ninja}",
                   f"-DCMAKE_CXX_COMPILER={self.compiler}", f"-DCMAKE_CUDA_COMPILER={self.nvcc}",
                   f"-DCMAKE_CUDA_ARCHITECTURES={self.architecture()}"]
        includes = []
        if self.prefix is not None:
            includes += vendor.include_folders(self.prefix)
            command += [f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DPKG_CONFIG_EXECUTABLE={self.prefix}/bin/pkg-config"]
        cublas, cudnn = self.cublas_of_python(), self.cudnn_of_python()
        if cublas is not None:
            includes.append(cublas / "include")
            library = min((cublas / "lib").glob("libcublasLt.so.*"))
            command.append(f"-DCUDA_cublasLt_LIBRARY={library}")
        if cudnn is not None:
            command.append(f"-DEBB_CUDNN_INCLUDE={cudnn / 'include'}")
        if includes:
            flags = " ".join(f"-isystem {folder}" for folder in includes)
            command += [f"-DCMAKE_CXX_FLAGS={flags}", f"-DCMAKE_CUDA_FLAGS={flags}"]
        return command

    def cublas_of_python(self):
        """The folder of cuBLAS in Python's packages, or None if the toolkit has its own cuBLAS."""
        if self.toolkit_has("cublasLt.h"):
            return None
        found = package_of_python("cublasLt.h", "libcublasLt.so.*")
        if found is None:
            raise Unfit(f"neither {self.toolkit()} nor Python's packages have cublasLt.h; pip install nvidia-cublas")
        return found

    def cudnn_of_python(self):
        """The same for cuDNN, or None: without cuDNN, attention uses Ebb's own kernels."""
        return None if self.toolkit_has("cudnn_graph.h") else package_of_python("cudnn_graph.h", "libcudnn.so.9")

    def toolkit(self):
        return pathlib.Path(os.path.realpath(self.nvcc)).parent.parent

    def toolkit_has(self, header):
        return any(self.toolkit().glob(f"**/{header}"))

    def queue_probe(self):
        """The path of this program, or None if it is not built."""
        return next(self.programs.glob(vendor.QUEUE_PROBE), None)

    @functools.cached_property
    def cuda_folders(self):
        """{name: folder, or None if it is missing} of the CUDA libraries that programs open at run time. They are looked for in
        Python's packages and then in the toolkit."""
        places = [*folders_of_python(), self.toolkit()]
        return {name: next((path.parent for place in places for path in sorted(place.glob(f"**/{library}"))), None)
                for name, library in OPENED_AT_RUN_TIME.items()}

    def environment(self):
        """The environment of built programs: the folders of their libraries, and EBB_REQUIRE_CUDA."""
        environment = {} if self.options.without_gpu else {"EBB_REQUIRE_CUDA": "1"}
        folders = [str(self.programs / "lib")] if self.packed else []
        folders += [str(path) for path in sorted((self.prefix / "lib").glob("*-linux-gnu"))] if self.prefix else []
        folders += [str(folder) for folder in self.cuda_folders.values() if folder]
        folders += filter(None, [os.environ.get("LD_LIBRARY_PATH")])
        if folders:
            environment["LD_LIBRARY_PATH"] = ":".join(dict.fromkeys(folders))
        return environment

    def describe(self):
        missing = [name for name, folder in self.cuda_folders.items() if folder is None]
        cpu = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        kilobytes = re.search(r"^MemTotal:\s*(\d+)", pathlib.Path("/proc/meminfo").read_text(), re.MULTILINE)
        return [f"GPU: {self.gpu or 'none'}",
                f"CPU: {cpu.group(1) if cpu else 'unknown'}, {len(os.sched_getaffinity(0))} cores, "
                f"{int(kilobytes.group(1)) / 2**20:.0f} GiB, kernel {os.uname().release}",
                f"compilers: {first_line(self.compiler, '--version')}; "
                f"nvcc {(re.findall(r'V([0-9.]+)', output(self.nvcc, '--version') or '') or ['?'])[-1]}",
                f"commit: {first_line('git', '-C', str(self.root), 'rev-parse', 'HEAD') or 'not in a repository'}",
                f"libraries: {'vendored' if self.prefix else 'of the system'}; "
                f"programs: {f'packed, in {self.programs.parent.name}' if self.packed else 'built here'}",
                f"CUDA libraries: {', '.join(f'there is no {OPENED_AT_RUN_TIME[name]} of {name}' for name in missing) or 'all found'}"
                + ("; without cuDNN and NVRTC, attention uses Ebb's own kernels" if {"cuDNN", "NVRTC"} & {*missing} else "")]


def package_of_python(header, library):
    """The folder of NVIDIA's package for Python that has both the header and the library, or None."""
    for folder in folders_of_python():
        for path in sorted(folder.glob(f"**/{header}")):
            if any((path.parent.parent / "lib").glob(library)):
                return path.parent.parent
    return None


@functools.cache
def folders_of_python():
    """The folders of NVIDIA's packages for Python."""
    found = output("python3", "-c", "import nvidia; print(*nvidia.__path__, sep='\\n')")
    return [pathlib.Path(line) for line in (found or "").splitlines()]


def find(name, *folders):
    path = shutil.which(name) or shutil.which(name, path=":".join(folders))
    if path is None:
        raise Unfit(f"there is no {name} in PATH" + (f" or {', '.join(folders)}" if folders else ""))
    return path


def output(*command):
    """The output of a command, or None if the command cannot run or fails."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def first_line(*command):
    text = output(*command)
    return text.splitlines()[0].strip() if text and text.strip() else None
