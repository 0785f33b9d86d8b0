"""Opens the inputs. Folders are expanded, gzip, bzip2 and xz are unpacked, and files that are no text are refused with
the command that converts them."""

import bz2
import gzip
import io
import lzma
import os
import pathlib
import re
import shlex
import zlib

from script_errors import BUFFER, InputError, open_file, reason

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
PACKED = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ\0": lzma.open,
          **{b"BZh%d1AY&SY" % level: bz2.open for level in range(1, 10)}}
JSON_NAME = re.compile(r"[^/]\.(json|jsonl|ndjson|jsonlines|jl)(\.(gz|bz2|xz))?\Z", re.IGNORECASE)
PANDAS = "python3 -c \"import pandas; pandas.read_{kind}({path!r}).to_json('new.jsonl', orient='records', lines=True)\""
TAR = "a tar archive: unpack it with: tar -xf {name}"
TAR_AT = 257  # bytes before the magic of a tar archive
UTF_16 = "UTF-16: convert it with: iconv -f UTF-16 -t UTF-8 {name} > new.txt"
TOKENS = "a token file already: ebb train --data {name}"

# The first bytes of files that are no text: what they are, and what to do.
OTHERS = {
    b"\xff\xfe": UTF_16,
    b"\xfe\xff": UTF_16,
    b"\x28\xb5\x2f\xfd": "packed by zstd: unpack it with: zstd -d {name}",
    b"PK\x03\x04": "a zip archive: unpack it with: unzip {name}",
    b"PAR1\x15": "Parquet: convert it with: " + PANDAS.replace("{kind}", "parquet"),
    b"ARROW1\0": "Arrow: convert it with: " + PANDAS.replace("{kind}", "feather"),
    b"\x93NUMPY": "an array of numpy: give the text; if the array contains tokens, write them with its tofile() and "
                  "give that file to: ebb train --data FILE.bin --token-type u16 (or u32)",
    b"%PDF-": "PDF: convert it with: pdftotext {name} new.txt",
    (20240520).to_bytes(4, "little"): TOKENS,
    (20240801).to_bytes(4, "little"): TOKENS,
    b"version https://git-lfs": "a pointer of Git LFS: fetch the file with: git lfs pull",
}
TABLES = (".csv", ".tsv")


def files_of(paths, notices):
    """Returns the files of the inputs. The files of a folder and its folders are sorted by path. `notices` gets what is
    left out of folders, and what is read twice."""
    files = []
    for path in paths:
        found = texts_under(path, notices) if os.path.isdir(path) else [path]
        if not found:
            raise InputError(f"{path}: there is no file in this folder")
        files += found
    seen = set()
    for file in files:
        status = check_exists(file)
        if (status.st_dev, status.st_ino) in seen:
            notices.add("{count} files are named twice and are read twice", file)
        seen.add((status.st_dev, status.st_ino))
    return files


def is_by_product(name):
    """Whether a file or folder is hidden, or is a backup or lock file of an editor."""
    return name.startswith((".", "#", "~$")) or name.endswith(("~", ".swp"))


def without_by_products(folder, names, notices):
    """Returns the names that are read."""
    for name in sorted(filter(is_by_product, names)):
        notices.add("left out {count} hidden files and backups of folders (name them to read them)",
                    os.path.join(folder, name))
    return [name for name in names if not is_by_product(name)]


def files_under(folder, notices):
    files, seen = [], set()
    for name, folders, names in os.walk(folder, followlinks=True, onerror=refuse_folder):
        if os.path.realpath(name) in seen:
            raise InputError(f"{name}: links lead to this folder twice; name the files instead")
        seen.add(os.path.realpath(name))
        folders[:] = without_by_products(name, folders, notices)  # which os.walk then reads
        files += [os.path.join(name, file) for file in without_by_products(name, names, notices)]
    for file in files:
        if os.path.exists(file) and not os.path.isfile(file):
            raise InputError(f"{file}: a device or a pipe in a folder is not read; name the files instead")
    return sorted(files)


def texts_under(folder, notices):
    """The files of a folder without pictures, programs and the like."""
    texts = []
    for file in files_under(folder, notices):
        if is_no_text(file):
            notices.add("left out {count} files that are no text", file)
        else:
            texts.append(file)
    return texts


def is_no_text(path):
    """Whether a file has a few NULs at its beginning and is of no kind that has its own advice."""
    try:
        with open(path, "rb") as file:
            begin = file.read(512)
    except OSError:
        return False  # opening it later reports the error
    is_known = begin.startswith((*OTHERS, *PACKED)) or begin[TAR_AT:].startswith(b"ustar")
    return not is_known and has_few_nuls(begin)


def has_few_nuls(begin):
    """A quarter or more of the bytes are NUL in UTF-16."""
    return 0 < begin.count(0) < len(begin) / 4


def refuse_folder(error):
    raise InputError(reason(error)) from error


def check_exists(path):
    try:
        status = os.stat(path)
    except OSError as error:
        what = f"it is a link to {os.readlink(path)}: " if os.path.islink(path) else ""
        raise InputError(f"{path}: {what}{error.strerror}") from error
    if not os.access(path, os.R_OK):
        raise InputError(f"{path}: Permission denied")
    return status


def is_json(path):
    """Whether the name of the file, or of the packed file, says that it contains JSON."""
    return JSON_NAME.search(path) is not None


def open_text(path):
    """Opens a file of text for reading bytes, after the byte order mark."""
    if pathlib.Path(path).suffix.lower() in TABLES:
        raise InputError(f"{path} is a table: convert it with: {PANDAS.format(kind='csv', path=path)}, and name the "
                         "column with the text 'text'; prose needs a name that ends in .txt")
    file = unpacked(open_file(path), path)
    try:
        begin = file.peek(512)[:512]
        refuse_others(begin, path)
    except InputError:
        file.close()
        raise
    if begin.startswith(BYTE_ORDER_MARK):
        file.read(len(BYTE_ORDER_MARK))
    return file


def refuse_others(begin, path):
    if begin[TAR_AT:].startswith(b"ustar"):
        raise InputError(f"{path} is {TAR.format(name=shlex.quote(str(path)))}")
    for first, advice in OTHERS.items():
        if begin.startswith(first):
            raise InputError(f"{path} is {advice.format(name=shlex.quote(str(path)), path=str(path))}")
    if has_few_nuls(begin):
        raise InputError(f"{path} is no text, because byte {begin.index(0)} is NUL: give files of text, or give the "
                         "folder, and files like this one are left out")
    if b"\0" in begin:
        refuse_nul(path, begin.index(b"\0"))


def refuse_nul(path, at):
    """`at`: the position of a NUL. The first half of a Latin character is NUL in UTF-16BE, the second in UTF-16LE."""
    order = "BE" if at % 2 == 0 else "LE"
    raise InputError(f"{path}: byte {at} is NUL, so the file is no text in UTF-8; if it is UTF-16, convert it with: "
                     f"iconv -f UTF-16{order} -t UTF-8 {shlex.quote(str(path))} > new.txt")


def unpacked(file, path):
    for first, unpack in PACKED.items():
        if file.peek(16).startswith(first):
            return io.BufferedReader(Unpacked(unpack(file), file, path), BUFFER)
    return file


class Unpacked(io.RawIOBase):
    """Reads a packed file. Damage is an InputError."""

    def __init__(self, file, packed, path):
        self.file, self.packed, self.path = file, packed, path

    def close(self):
        self.file.close()
        self.packed.close()
        super().close()

    def readable(self):
        return True

    def readinto(self, buffer):
        try:
            return self.file.readinto(buffer)
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            raise InputError(f"{self.path}: the packed file is damaged or incomplete: {error}") from error
