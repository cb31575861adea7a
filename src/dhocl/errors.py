"""The one error that is the user's to mend."""


class InputError(ValueError):
    """Something given from outside can not be used; the message says what, where and what to do.

    The command line prints it as one line and exits with code 2. Anything else that is raised is a defect.
    """
