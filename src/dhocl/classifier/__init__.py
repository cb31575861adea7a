"""A model with images and names: learn, predict and evaluate photographs."""

from dhocl.classifier.classifier import Classifier
from dhocl.classifier.evaluation import Evaluation
from dhocl.classifier.prediction import Guess, Prediction
from dhocl.classifier.suggested import Suggested

__all__ = ["Classifier", "Evaluation", "Guess", "Prediction", "Suggested"]
