"""Packs libraries or programs into archives, for machines without Debian's packages and without a network.

The archive of libraries is for machines that compile Ebb. It has the folders of /usr. It contains headers, CMake and
pkg-config files, the libraries, the shared libraries that these need (except those of every C++ compiler), and pkg-config. It
contains no absolute paths, so it works in any folder.

The archive of programs is for machines where compiling takes too long. It contains programs without their symbols, in the
folders of a build folder, and in lib/ the shared libraries that they need, except those of every C++ compiler and of CUDA.
"""

import gzip
import hashlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile

LARGEST_BYTES = 60 << 20  # of repository and archives together
PROGRAMS = ["tools/ebb", "bench/bench_gpu", "tests/test_device", "tests/test_kernels_cuda", "tests/test_training_cuda"]
QUEUE_PROBE = "*/queue_probe"  # packed if it is built
OF_CUDA = re.compile(r"^lib(cuda|cudart|cublas|cublasLt|cudnn\w*|nvrtc\S*|nvJitLink|nvidia\S*)\.so")
# What a C++ compiler brings: packing them would mix two C libraries.
OF_EVERY_SYSTEM = re.compile(
    r"^(linux-vdso|ld-linux|libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libresolv|libutil)[.-]")
SOURCE = "source"  # the file of the archive of programs that names their source folder
WANTED = re.compile(r"^/usr/(include|lib|share/(cmake|eigen3|pkgconfig))/")
PKG_CONFIG = """#!/bin/sh
# The vendored pkg-config, which reads only the vendored files.
usr=$(cd "$(dirname "$0")/.." && pwd)
export PKG_CONFIG_SYSROOT_DIR="${usr%/usr}" PKG_CONFIG_ALLOW_SYSTEM_LIBS=1 PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1
export PKG_CONFIG_LIBDIR="$(echo "$usr"/lib/*/pkgconfig | tr ' ' ':'):$usr/lib/pkgconfig:$usr/share/pkgconfig"
LD_LIBRARY_PATH="$usr/pkgconf${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$usr/pkgconf/pkgconf" "$@"
"""


def packages(root):
    """Returns the development packages that tools/setup installs."""
    text = (root / "tools" / "setup").read_text(encoding="utf-8")
    names = re.search(r'^packages="([^"]*)"', text, re.MULTILINE).group(1).split()
    return [name for name in names if name.endswith("-dev") and name != "dpkg-dev"]


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed_libraries(file):
    """Yields (name in the ELF file, path) for each shared library that the file needs."""
    for line in output_of("ldd", file).splitlines():
        match = re.match(r"\s*(\S+) => (/\S+)", line)
        if match and not OF_EVERY_SYSTEM.match(match.group(1)):
            yield match.group(1), match.group(2)


def own_name_of(file):
    """Returns the SONAME of a shared library, or its file name if there is none."""
    match = re.search(r"\(SONAME\).*\[(\S+)\]", output_of("readelf", "-d", file))
    return match.group(1) if match else os.path.basename(file)


def tree_of(names):
    """Returns {path under usr/: file or link target} for the files of the packages and the libraries they need."""
    files, libraries = {}, set()
    for name in names:
        for path in output_of("dpkg", "-L", name).splitlines():
            if WANTED.match(path) and not os.path.isdir(path):
                add(files, libraries, path)
    while libraries:
        library = libraries.pop()
        folder = "lib/" + pathlib.Path(library).parent.name + "/"
        files.setdefault(folder + own_name_of(library), library)
        for own_name, path in needed_libraries(library):
            if folder + own_name not in files:
                files[folder + own_name] = os.path.realpath(path)
                libraries.add(os.path.realpath(path))
    pkgconf = os.path.realpath(shutil.which("pkgconf") or shutil.which("pkg-config"))
    files["pkgconf/pkgconf"] = pkgconf
    for own_name, path in needed_libraries(pkgconf):
        files["pkgconf/" + own_name] = os.path.realpath(path)
    files["bin/pkg-config"] = PKG_CONFIG.encode()
    return files


def add(files, libraries, path):
    """Adds one file. If the file is a link, adds its target too."""
    at = path.removeprefix("/usr/")
    if at in files:
        return
    if os.path.islink(path):
        target = os.path.join(os.path.dirname(path), os.readlink(path))
        if os.path.normpath(target).startswith("/usr/"):
            files[at] = os.readlink(path)
            if not os.path.isabs(files[at]):
                return add(files, libraries, os.path.normpath(target))
    files[at] = os.path.realpath(path)
    if ".so" in os.path.basename(path):
        libraries.add(files[at])


def write_archive(files, archive):
    """Writes {path under usr/: file, link target, or the bytes of a script}. The same files give the same bytes."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with open(archive, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as zipped:
        with tarfile.open(fileobj=zipped, mode="w") as tar:
            for at, source in sorted(files.items()):
                entry = tarfile.TarInfo("usr/" + at)
                is_script = isinstance(source, bytes)
                if not is_script and not os.path.isabs(source):
                    entry.type, entry.linkname = tarfile.SYMTYPE, source
                    tar.addfile(entry)
                    continue
                data = source if is_script else pathlib.Path(source).read_bytes()
                entry.size, entry.mode = len(data), 0o755 if is_script or os.access(source, os.X_OK) else 0o644
                tar.addfile(entry, io.BytesIO(data))


def repository_bytes(root):
    try:
        names = output_of("git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        paths = [root / name for name in names.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):  # git is missing, or this is not a git checkout
        paths = [path for path in root.rglob("*") if path.is_file() and path.relative_to(root).parts[0] != "build"]
    return sum(path.lstat().st_size for path in paths if path.is_symlink() or path.exists())


def pack(root, archive):
    """Packs the libraries. Throws SystemExit if the repository and the archives are too large together."""
    names = packages(root)
    files = tree_of(names)
    write_archive(files, archive)
    print(f"vendor: {', '.join(names)}: {len(files)} files")
    check_size(root, archive)


def pack_programs(root, build_folder, archive):
    """Packs the programs of a build folder. Throws SystemExit if one is missing, or as pack() does."""
    names = [*PROGRAMS, *(str(path.relative_to(build_folder)) for path in build_folder.glob(QUEUE_PROBE))]
    if missing := [name for name in names if not (build_folder / name).exists()]:
        raise SystemExit(f"pack: {build_folder} has no {', '.join(missing)}; build them first")
    with tempfile.TemporaryDirectory() as held:
        files = {}
        for name in names:
            files[name] = os.path.join(held, os.path.basename(name))
            output_of("strip", "-o", files[name], str(build_folder / name))
            for own_name, path in needed_libraries(str(build_folder / name)):
                if not OF_CUDA.match(own_name):
                    files["lib/" + own_name] = os.path.realpath(path)
        files[SOURCE] = source_of(build_folder).encode()
        write_archive(files, archive)
    print(f"pack: {', '.join(sorted(files))}")
    check_size(root, archive)


def source_of(build_folder):
    """The source folder of a build folder."""
    cache = (build_folder / "CMakeCache.txt").read_text(encoding="utf-8")
    return re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", cache, re.MULTILINE).group(1)


def check_size(root, archive):
    packed = sum(path.stat().st_size for path in archive.parent.glob("*.tar.gz"))
    both = repository_bytes(root) + packed
    print(f"{archive}: {archive.stat().st_size / 2**20:.1f} MiB; repository and archives: {both / 2**20:.1f} MiB")
    if both > LARGEST_BYTES:
        raise SystemExit(f"more than {LARGEST_BYTES >> 20} MiB")


def unpack(archive, prefix):
    """Unpacks an archive once. Returns the folder that replaces /usr, or None if there is no archive."""
    if not archive.exists():
        return None
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    mark = prefix / "unpacked"
    if not mark.exists() or mark.read_text() != digest:
        shutil.rmtree(prefix, ignore_errors=True)
        prefix.mkdir(parents=True)
        with tarfile.open(archive) as tar:
            tar.extractall(prefix)
        mark.write_text(digest)
    return prefix / "usr"


def unpack_programs(archive, folder, root):
    """Unpacks the archive of programs. Returns their folder, which has another name if the archive has other contents, so
    that earlier results count only for the same programs. Test programs read files of the source folder that they were
    compiled from. If this machine has no such folder, its path becomes a link to `root`."""
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    programs = unpack(archive, folder / f"programs-{digest[:8]}")
    source = pathlib.Path((programs / SOURCE).read_text(encoding="utf-8"))
    if not os.path.lexists(source):
        source.parent.mkdir(parents=True, exist_ok=True)
        source.symlink_to(root)
        print(f"{source} is now a link to {root}", flush=True)
    return programs


def include_folders(prefix):
    """Returns the include folders. Debian has a separate folder for headers that depend on the architecture."""
    return [prefix / "include", *sorted((prefix / "include").glob("*-linux-gnu"))]
