"""Rewrite the tables of the pages of the working directory."""

import sys

from bitwise_bench.result_tables.pages import main

if __name__ == "__main__":
    sys.exit(main())
