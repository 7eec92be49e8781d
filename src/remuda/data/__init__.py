"""Training data: from a name or a path to tensors in [-1, 1], and the part each cell sees."""

from remuda.data.dataset import Dataset, Modes
from remuda.data.formats import NAMED
from remuda.data.formats.arrays import dataset_from_array
from remuda.data.items import StoredItems
from remuda.data.labels import find_label
from remuda.data.load import has_unseen, load_dataset, load_unseen, selected
from remuda.data.scaling import PIXELS, Scaling
from remuda.data.shared import open_shared_dataset, share_dataset
from remuda.data.views import view_indices

__all__ = [
    "NAMED",
    "PIXELS",
    "Dataset",
    "Modes",
    "Scaling",
    "StoredItems",
    "dataset_from_array",
    "find_label",
    "has_unseen",
    "load_dataset",
    "load_unseen",
    "open_shared_dataset",
    "selected",
    "share_dataset",
    "view_indices",
]
