"""The error for wrong input."""


class InputError(ValueError):
    """Wrong input that the user can correct. The message says what, where and what to do.

    The command line prints it as one line and exits with code 2. Any other exception is a bug.
    """
