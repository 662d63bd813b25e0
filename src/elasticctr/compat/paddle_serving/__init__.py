"""Converts Paddle Serving's configuration files into our settings, and reports what these cannot express.

conversion = read_serving(Path("conf"))           # model_toolkit.prototxt, gflags.conf, … → serve.yaml's settings
settings, notes = read_predictors(Path("conf/predictors.prototxt"))   # → settings of a prediction client
"""

from elasticctr.compat.paddle_serving.predictors import read_predictors
from elasticctr.compat.paddle_serving.serving import ServingConversion, read_serving

__all__ = ["ServingConversion", "read_predictors", "read_serving"]
