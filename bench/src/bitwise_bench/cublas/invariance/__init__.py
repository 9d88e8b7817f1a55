"""For which numbers of rows the products of public models have one order: records, and their page."""
