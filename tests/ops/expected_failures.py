"""The few (check, op) pairs that can't pass for a reason that is torch's or the test's own. At most eight.

Cases where the CPU fails in the same way need no entry; the suite finds them. An entry that passes fails the run.
"""

EXPECTED_FAILURES: dict[tuple[str, str], str] = {}

assert len(EXPECTED_FAILURES) <= 8, "the list of expected failures is full: fix one first"
