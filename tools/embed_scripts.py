#!/usr/bin/env python3
"""Writes a C++ file with an archive of Python modules, which Python runs as one program: embed_scripts.py OUT MAIN FILE...

MAIN becomes __main__.py of the archive; all paths are relative to the folder of this file. The archive depends only on the
contents, so its hash is a version of the program.
"""

import io
import pathlib
import sys
import zipfile

FOLDER = pathlib.Path(__file__).resolve().parent
PER_LINE = 32


def archive(main, files):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as out:
        for name, file in [("__main__.py", main), *((file, file) for file in sorted(files))]:
            out.writestr(zipfile.ZipInfo(name), (FOLDER / file).read_bytes(), zipfile.ZIP_DEFLATED)
    return data.getvalue()


def source(data):
    lines = [",".join(map(str, data[i:i + PER_LINE])) for i in range(0, len(data), PER_LINE)]
    return ("#include \"tools/text_archive.h\"\n\nnamespace ebb {\nnamespace {\nconstexpr unsigned char kBytes[] = {\n"
            + ",\n".join(lines) + "};\n}  // namespace\n\nstd::string_view text_archive() {\n"
            "  return {reinterpret_cast<const char*>(kBytes), sizeof kBytes};\n}\n\n}  // namespace ebb\n")


def main(arguments):
    out, program, *files = arguments
    pathlib.Path(out).write_text(source(archive(program, files)))


if __name__ == "__main__":
    main(sys.argv[1:])
