"""Settings of a table: its segments, their optimizers and initial values, and admission.

docs/concepts/tables.md explains every choice. These settings are checked here and turned into native ones by table.py.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag, model_validator

from elasticctr.config import Settings, tagged_by

Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class _Optimizer(Settings):
    l1: NotNegative = Field(0.0, description="moves the weights a batch touches by rate * l1 towards 0 after each step")
    l2: NotNegative = Field(0.0, description="adds l2 * weight to the gradient of the rows a batch touches")
    gradient_clip: NotNegative = Field(0.0, description="cuts every summed gradient to [-clip, clip]; 0: no clipping")
    weight_bound: NotNegative = Field(0.0, description="keeps every weight in [-bound, bound]; 0: no bound")


class SgdSettings(_Optimizer):
    """w -= rate * g"""

    name: Literal["sgd"] = "sgd"
    learning_rate: Rate = Field(0.01, description="step size")


class AdagradSettings(_Optimizer):
    """s += g²; w -= rate * g / (√s + epsilon), as torch.optim.Adagrad"""

    name: Literal["adagrad"] = "adagrad"
    learning_rate: Rate = Field(0.01, description="step size")
    initial_accumulator: NotNegative = Field(0.0, description="s of a new row")
    epsilon: NotNegative = Field(1e-10, description="keeps the division finite")


class RowwiseAdagradSettings(_Optimizer):
    """s += mean(g²); w -= rate * g / (√s + epsilon): one accumulator per row instead of one per weight"""

    name: Literal["rowwise_adagrad"] = "rowwise_adagrad"
    learning_rate: Rate = Field(0.01, description="step size")
    initial_accumulator: NotNegative = Field(0.0, description="s of a new row")
    epsilon: NotNegative = Field(1e-8, description="keeps the division finite")


class AdamSettings(_Optimizer):
    """Adam for the rows a batch touches (torch.optim.SparseAdam), or with catch_up for all rows (torch.optim.Adam)"""

    name: Literal["adam"] = "adam"
    learning_rate: Rate = Field(0.001, description="step size")
    beta1: Fraction = Field(0.9, description="memory of the mean gradient")
    beta2: Fraction = Field(0.999, description="memory of the mean squared gradient")
    epsilon: NotNegative = Field(1e-8, description="keeps the division finite")
    catch_up: int = Field(
        0,
        ge=0,
        le=65536,
        description="missed steps that an untouched row makes up for when next read, with momentum, l1 and l2 as for "
        "the others; 0: untouched rows do not change",
    )

    @model_validator(mode="after")
    def _check_catch_up(self) -> AdamSettings:
        if self.catch_up > 0 and self.epsilon == 0:
            raise ValueError("catch_up needs an epsilon above 0")
        return self


class FtrlSettings(_Optimizer):
    """FTRL-proximal, which gives exact zeros with l1. Here l2 is a term of the formula, not added to the gradient."""

    name: Literal["ftrl"] = "ftrl"
    learning_rate: Rate = Field(0.05, description="alpha: step size")
    beta: NotNegative = Field(1.0, description="smooths the first steps")
    l1: NotNegative = Field(0.0, description="weights whose |z| stays below it are exactly 0")
    initial_accumulator: NotNegative = Field(0.0, description="n of a new row")


OptimizerSettings = Annotated[
    Annotated[SgdSettings, Tag("sgd")]
    | Annotated[AdagradSettings, Tag("adagrad")]
    | Annotated[RowwiseAdagradSettings, Tag("rowwise_adagrad")]
    | Annotated[AdamSettings, Tag("adam")]
    | Annotated[FtrlSettings, Tag("ftrl")],
    tagged_by("name", default="adam"),
]


class ZerosSettings(Settings):
    """All zeros"""

    name: Literal["zeros"] = "zeros"


class ConstantSettings(Settings):
    """One value"""

    name: Literal["constant"] = "constant"
    value: float = Field(0.0, allow_inf_nan=False, description="value of every weight")


class UniformSettings(Settings):
    """Uniform in [low, high)"""

    name: Literal["uniform"] = "uniform"
    low: float = Field(-0.01, allow_inf_nan=False, description="smallest initial weight")
    high: float = Field(0.01, allow_inf_nan=False, description="largest initial weight")

    @model_validator(mode="after")
    def _check_order(self) -> UniformSettings:
        if self.low > self.high:
            raise ValueError(f"low ({self.low}) must not be above high ({self.high})")
        return self


class NormalSettings(Settings):
    """Normal, cut at six standard deviations"""

    name: Literal["normal"] = "normal"
    mean: float = Field(0.0, allow_inf_nan=False, description="mean of the initial weights")
    std: NotNegative = Field(0.01, description="standard deviation of the initial weights")


InitializerSettings = Annotated[
    Annotated[ZerosSettings, Tag("zeros")]
    | Annotated[ConstantSettings, Tag("constant")]
    | Annotated[UniformSettings, Tag("uniform")]
    | Annotated[NormalSettings, Tag("normal")],
    tagged_by("name", default="uniform"),
]


class SegmentSettings(Settings):
    """A run of weights of every row, with its own optimizer and initial values"""

    name: str = Field("embedding", min_length=1, description="how layouts and files refer to it")
    dim: int = Field(ge=1, le=65536, description="number of weights")
    optimizer: OptimizerSettings = Field(AdamSettings(), description="how gradients change the weights")
    initializer: InitializerSettings = Field(UniformSettings(), description="weights of a new row")


class AdmissionSettings(Settings):
    """When a new feasign gets a row; until then it is read as zeros"""

    count: int = Field(1, ge=1, le=65535, description="a feasign gets a row at its count-th occurrence in training")
    probability: float = Field(1.0, gt=0, le=1, description="chance that an occurrence in training creates a row")

    @model_validator(mode="after")
    def _check_one(self) -> AdmissionSettings:
        if self.count > 1 and self.probability < 1:
            raise ValueError("admission uses count or probability; give only one")
        return self


class TableSettings(Settings):
    """A sparse table"""

    name: str = Field("main", min_length=1, description="name used by slots; initial values depend on it")
    segments: tuple[SegmentSettings, ...] = Field(min_length=1, description="the weights of a row, in order")
    seed: int = Field(0, ge=0, lt=1 << 64, description="seed of initial values and of admission by probability")
    counters: bool = Field(True, description="keep show, click and last-seen per row (12 bytes); eviction needs them")
    admission: AdmissionSettings = Field(AdmissionSettings(), description="when a new feasign gets a row")

    @property
    def moves_untouched_rows(self) -> bool:
        """Whether a step also changes rows that its batch does not touch."""
        return any(isinstance(s.optimizer, AdamSettings) and s.optimizer.catch_up > 0 for s in self.segments)

    @model_validator(mode="after")
    def _check_names(self) -> TableSettings:
        names = [segment.name for segment in self.segments]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"segment {name!r} is declared twice")
        return self
