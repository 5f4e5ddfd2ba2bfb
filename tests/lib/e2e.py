"""What a case_*.py of tests/e2e needs: the list of cases, the mode, and how to skip."""
import os

CASES = []
MODE = os.environ.get("MODE", "normal")


class Skipped(Exception):
    """The reason why a case cannot run here."""


def case(function):
    CASES.append(function)
    return function


def rounds(quick, normal, full=None):
    return {"quick": quick, "normal": normal}.get(MODE, normal if full is None else full)
