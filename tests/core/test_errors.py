from __future__ import annotations

import pytest
import torch

from dhocl.core.errors import lacks_memory


def test_what_pytorch_raises_lacks_memory() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60)
    assert lacks_memory(caught.value)


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        (MemoryError(), True),
        (OSError(12, "Cannot allocate memory"), True),
        (OSError(28, "No space left on device"), False),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB."), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (RuntimeError("some elements refer to a single memory location"), False),
        (ValueError("out of memory"), False),
    ],
    ids=repr,
)
def test_errors_that_only_mention_memory_do_not(error: Exception, lacks: bool) -> None:
    assert lacks_memory(error) == lacks
