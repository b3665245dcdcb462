"""What can go wrong, as one tree.

::

    NsegError
    ├── InputError        (ValueError)    data, index or target that cannot be explained
    ├── SettingsError     (ValueError)    a setting outside its range
    ├── UnsupportedError  (ValueError)    a kind of task or mask that NSEG does not explain
    ├── ModelError        (RuntimeError)  a model that cannot be intervened on
    ├── BudgetError       (MemoryError)   one instance needs more memory than the budget
    └── MissingError      (ImportError)   an optional library that is not installed

Every message says what must hold, what was given, and what to do about it.
"""


class NsegError(Exception):
    """Root of all errors that this package raises on purpose."""


class InputError(NsegError, ValueError):
    """Data, index or target that cannot be explained."""


class SettingsError(NsegError, ValueError):
    """A setting outside its range."""


class UnsupportedError(NsegError, ValueError):
    """A kind of task or mask that the algorithm does not explain."""


class ModelError(NsegError, RuntimeError):
    """A model that cannot be intervened on."""


class BudgetError(NsegError, MemoryError):
    """One instance needs more memory than the budget allows."""


class MissingError(NsegError, ImportError):
    """An optional library that is not installed."""
