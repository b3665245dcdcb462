import gc

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("busy machine", deadline=None, derandomize=True)
hypothesis.settings.load_profile("busy machine")


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Tests run side by side, one thread each; what was imported and collected is no garbage and is not looked through."""
    torch.set_num_threads(1)
    gc.freeze()
