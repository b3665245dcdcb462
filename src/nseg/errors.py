"""What can go wrong, as one tree.

::

    NsegError
    ├── InputError        (ValueError)    data, index or target that cannot be explained
    ├── SettingsError     (ValueError)    a setting outside its range
    ├── UnknownNameError  (TypeError)     a setting that does not exist
    ├── UnsupportedError  (ValueError)    a kind of task or mask that NSEG does not explain
    ├── ModelError        (RuntimeError)  a model that cannot be intervened on
    ├── BudgetError       (MemoryError)   one instance needs more memory than the budget
    ├── MissingError      (ImportError)   an optional library that is not installed
    ├── StoreError        (OSError)       a folder that cannot be written, is damaged, or belongs to something else
    └── BackendError      (RuntimeError)  workers that cannot be reached, or keep dying

Every message says what must hold, what was given, and what to do about it. What is worth knowing but no error comes as an
``NsegWarning``.
"""


class NsegError(Exception):
    """Root of all errors that this package raises on purpose."""


class InputError(NsegError, ValueError):
    """Data, index or target that cannot be explained."""


class SettingsError(NsegError, ValueError):
    """A setting outside its range."""


class UnknownNameError(NsegError, TypeError):
    """A setting that does not exist."""


class UnsupportedError(NsegError, ValueError):
    """A kind of task or mask that the algorithm does not explain."""


class ModelError(NsegError, RuntimeError):
    """A model that cannot be intervened on."""


class BudgetError(NsegError, MemoryError):
    """One instance needs more memory than the budget allows."""


class MissingError(NsegError, ImportError):
    """An optional library that is not installed."""


class StoreError(NsegError, OSError):
    """A folder that cannot be written, is damaged, or belongs to something else."""


class BackendError(NsegError, RuntimeError):
    """Workers that cannot be reached, or keep dying."""


class NsegWarning(UserWarning):
    """Something that was done otherwise than asked, or left out, and why."""
