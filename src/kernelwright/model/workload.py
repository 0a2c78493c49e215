"""What to run: the workload, its form, version and parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from .base import Record

Form = Literal["model", "kernelbench", "versions", "script"]
"""model: get_model_and_input(); kernelbench: Model/get_inputs/get_init_inputs; versions: VERSIONS/get_inputs; script: any other."""
Device = Literal["auto", "cuda", "cpu"]
CompileMode = Literal["eager", "inductor", "cudagraphs"]
Precision = Literal["equal", "tf32", "bf16"]
ParamValue = int | float | bool | str | None


class ScriptRef(Record):
    """How a script is called."""

    argv0: str
    """The script as the user typed it: its sys.argv[0]."""
    argv: tuple[str, ...] = ()
    """Its own arguments."""


class VersionSource(Record):
    """Where the project file says that a version is: a file of its own, or a function in one."""

    path: Path
    """Absolute."""
    function: str | None = None
    """A function or nn.Module class of that file, called with the inputs of the workload's file; None: the file is a workload."""


class WorkloadRef(Record):
    """What the user named: a file, maybe a version, parameters as typed on the command line (text)."""

    path: Path
    """Absolute path of the workload file."""
    name: str
    """The kernel's name: --model-name, the project file's name, or the file's stem."""
    version: str | None = None
    params: dict[str, str] = Field(default_factory=dict)
    """`--NAME=VALUE` workload parameters, values still text; the probe gives them the type of the default."""
    source: VersionSource | None = None
    """Set when the project file gives this version a file; `version` is then a name alone, and no entry of VERSIONS."""
    import_from: tuple[Path, ...] = ()
    """Folders of the project that its files import from beside their own."""
    devlog: Path | None = None
    """Where the project file puts this kernel's development log; None: beside the workload."""
    script: ScriptRef | None = None
    """Set when the file is a script: it is run as it is instead of being loaded."""
    kernel: str | None = None
    """The kernel of the project file that this is; None outside a project. `name` may differ (--model-name)."""
    project: Path | None = None
    """The project file."""
    device: Device = "auto"
    """Where the project file wants it to run; a flag wins."""
    stages: tuple[str, ...] = ()
    """Stages that the project file says a timeline of it shows."""
    clocks: str | None = None
    """What the project file asks for: none, lock or a number of MHz. None: nothing; a flag wins."""


class TensorSpec(Record):
    """One tensor leaf of a nested input or output."""

    path: str
    """Place in the nest, e.g. "0", "batch.mask", "" for a lone tensor."""
    shape: tuple[int, ...]
    dtype: str
    """torch's short name, e.g. "float32", "bfloat16", "int64"."""
    device: str
    """"cuda" or "cpu"."""


class ChangingInput(Record):
    """An input tensor that is not of the same shape in every call: seen under several seeds, or marked for torch.compile."""

    path: str
    """As in TensorSpec."""
    dims: tuple[int, ...] | None
    """Dimensions whose size changes; None: their number does, or the dtype."""
    shapes: tuple[tuple[int, ...], ...]
    """Those that were seen, each once."""


class GenerationLoop(Record):
    """One call runs the same module again and again, sizes growing by the same step or the host reading values on the way."""

    module: str
    """Its name in the model, else its class."""
    calls: int
    grows: tuple[int, int] | None
    """First and last of the sizes that grew from step to step; None: none did."""
    reads: int
    """Values that the host read from the device (`.item()`, `.cpu()`; of a copied tensor, one)."""


class WorkloadFacts(Record):
    """What the probe found out when it loaded the workload."""

    form: Form
    version: str | None
    versions: tuple[str, ...] = ()
    """All version names (form "versions")."""
    params: dict[str, ParamValue]
    """All parameters with their values, in the workload's own order. Empty when it has none."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    training: bool
    """True when one call is a training step (forward and backward)."""
    dtype: str
    """The floating dtype that carries most input and parameter bytes."""
    parameter_count: int
    parameter_bytes: int
    already_compiled: bool
    """The callable or a part of it went through torch.compile."""
    compiled_inside: bool = False
    """torch.compile is used somewhere inside the callable where it can't be taken off: neither around it, nor in place (model.compile()),
    nor around a submodule or a method."""
    already_graphed: bool = False
    """Forward methods of the model, or of a part of it, were replaced by torch.cuda.make_graphed_callables. These can be taken off."""
    changing_inputs: tuple[ChangingInput, ...] = ()
    """Asked for by ProbeRequest.variation; empty where all shapes stay."""
    changing_values: tuple[str, ...] = ()
    """Paths in (args, kwargs) of numbers, words and switches that follow the seed."""
    changing_structure: tuple[str, ...] = ()
    """Places, as TensorSpec's paths, of tensors and plain values that only some seeds' inputs have."""
    inputs_s: float | None = None
    """Seconds in which the workload makes inputs anew, where it makes them (the least of several times). Asked for by
    ProbeRequest.variation."""
    loop: GenerationLoop | None = None
    """Asked for by ProbeRequest.variation."""
    backward_inside: bool = False
    """A call that is no training step runs a backward pass itself (forces by torch.autograd.grad), and fails where its caller has turned
    gradients off. Asked for by ProbeRequest.variation."""
    changing_weights: tuple[str, ...] = ()
    """Parameters that such a backward pass leaves changed in the same call (an optimizer's step in it)."""
    changing_attributes: tuple[str, ...] = ()
    """Attributes of the model and its parts that a call binds anew (a counter, `self.ema = ...` of a buffer), by name. What is written in
    place is none. Asked for by ProbeRequest.variation."""
    written_buffers: tuple[str, ...] = ()
    """Buffers that a call writes in place. Asked for by ProbeRequest.variation."""

    @property
    def hidden(self) -> bool:
        """Whether a profile shows the workload's own torch.compile or graphs in the place of its operators, and these can be taken off."""
        return (self.already_compiled and not self.compiled_inside) or self.already_graphed

    @property
    def needs_gradients(self) -> bool:
        """Whether a call must run under grad mode."""
        return self.training or self.backward_inside
