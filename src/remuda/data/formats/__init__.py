"""All named data sets and data formats: a new one is a file here and a line in this one."""

from remuda.data.formats.arrays import NPY, NPZ, TEXT
from remuda.data.formats.base import Format, NamedSet
from remuda.data.formats.cifar import CIFAR10, CIFAR100, CIFAR_FOLDER
from remuda.data.formats.digits import DIGITS
from remuda.data.formats.folder import IMAGE_FOLDER
from remuda.data.formats.idx import IDX
from remuda.data.formats.mnist import MNIST
from remuda.data.formats.points import MOG25, R15, RING8

__all__ = ["FORMATS", "NAMED", "Format", "NamedSet"]

NAMED: dict[str, NamedSet] = {
    known.name: known for known in (DIGITS, MNIST, CIFAR10, CIFAR100, R15, MOG25, RING8)
}
# The first that recognises a path reads it; any folder may be one of images.
FORMATS: list[Format] = [NPZ, NPY, TEXT, IDX, CIFAR_FOLDER, IMAGE_FOLDER]
