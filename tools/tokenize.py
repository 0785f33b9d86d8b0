#!/usr/bin/env python3
"""Makes token files for `ebb train` from text or JSON lines, with a Hugging Face tokenizer.

  tools/tokenize.py --tokenizer DIR --output PREFIX [--labels] [--documents] INPUT...

writes PREFIX.bin, a record of it in PREFIX.bin.json, and if requested PREFIX.labels and PREFIX.documents. `--help`
explains all flags. It needs the packages tokenizers, jinja2 and numpy.

transformers imports Python's own module `tokenize`. Scripts in this folder would import this file instead. When it is
imported, this file therefore replaces itself with Python's module.
"""

import sys

if __name__ == "tokenize":
    import importlib.util
    import sysconfig

    _spec = importlib.util.spec_from_file_location("tokenize", sysconfig.get_path("stdlib") + "/tokenize.py")
    sys.modules["tokenize"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["tokenize"])
elif __name__ == "__main__":
    from script_errors import run
    from tokenizing.command import main

    sys.exit(run("tokenize.py", main, sys.argv[1:]))
