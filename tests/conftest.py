import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Tests run side by side, one thread each."""
    torch.set_num_threads(1)
