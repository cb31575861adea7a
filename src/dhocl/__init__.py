"""Online continual learning with label hierarchies that grow."""

from dhocl.classifier import Classifier, Guess, Prediction
from dhocl.errors import InputError
from dhocl.taxonomy import Label, Taxonomy

__all__ = ["Classifier", "Guess", "InputError", "Label", "Prediction", "Taxonomy"]
__version__ = "0.1.0"
