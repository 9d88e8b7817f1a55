"""Receipts: what the bits of a run rest on, claim by claim, in a form that a program can check."""

from __future__ import annotations

from bitwise_torch.receipts.comparison import ReceiptDifference, receipt_differences
from bitwise_torch.receipts.receipt_file import Claim, Operator, Receipt, ReceiptError, read_receipt
from bitwise_torch.receipts.verification import Check, verified
from bitwise_torch.receipts.writing import receipt_of

__all__ = [
    "Check", "Claim", "Operator", "Receipt", "ReceiptDifference", "ReceiptError", "read_receipt",
    "receipt_differences", "receipt_of", "verified",
]  # fmt: skip
