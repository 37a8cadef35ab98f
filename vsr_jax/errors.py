"""Errors whose message is meant for the person at the keyboard."""


class UserError(Exception):
    """Bad input: one line that names the file, the field and the fix.

    The command line prints the message without a traceback and exits with code 2.
    """
