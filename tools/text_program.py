"""The program that `ebb` starts to make tokens of text, and text of tokens. `ebb` contains it and all modules that it
imports, as an archive (embed_scripts.py), in which this file has the name __main__.py."""

import sys

from tokenizing.service import main

if __name__ == "__main__":
    sys.exit(main())
