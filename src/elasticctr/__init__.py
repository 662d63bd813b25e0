"""ElasticCTR: from a click log to live click-through-rate predictions, as one system."""

__version__ = "0.1.0"
