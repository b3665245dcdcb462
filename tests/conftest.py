import pytest
import torch


@pytest.fixture(autouse=True)
def _global_random_state_is_not_ours():
    """No test may pass by moving the global random state, and no call of ours may."""
    torch.manual_seed(1234)
    yield


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    torch.set_num_threads(1)
