"""Knowledge sources, and the curator that queries them about new classes."""

from dhocl.knowledge.background import Background
from dhocl.knowledge.curator import Curator
from dhocl.knowledge.darwin_core import DarwinCore
from dhocl.knowledge.llm import Llm
from dhocl.knowledge.opening import open_source, open_tree
from dhocl.knowledge.source import Chain, Corrupted, KnowledgeSource, Link, Oracle, Silent, Statement, Synonym
from dhocl.knowledge.wordnet import WordNet

__all__ = [
    "Background",
    "Chain",
    "Corrupted",
    "Curator",
    "DarwinCore",
    "KnowledgeSource",
    "Link",
    "Llm",
    "Oracle",
    "Silent",
    "Statement",
    "Synonym",
    "WordNet",
    "open_source",
    "open_tree",
]
