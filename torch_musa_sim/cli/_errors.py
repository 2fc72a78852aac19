"""What a sub-command raises when the user has to change the command line."""


class UsageError(Exception):
    """One sentence that says what was wrong, what is accepted and what to do; `main` prints it and exits with 2."""
