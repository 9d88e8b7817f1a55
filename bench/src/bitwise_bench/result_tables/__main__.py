"""Rewrite the tables of the pages of the working directory."""

import sys

from bitwise_bench.result_tables.pages import main

sys.exit(main())
