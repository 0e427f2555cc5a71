"""The callee of an incomplete call: its parameters and its documentation."""

from __future__ import annotations

from dataclasses import dataclass

from tensorc_dsl.check import vocabulary as v
from tensorc_dsl.check.kinds import ANY, Kind, ModuleOf, Parameter, Signature, show_all
from tensorc_dsl.elaborate.bindings import dimensions
from tensorc_dsl.ir.maths import MATHS
from tensorc_dsl.lsp.analysis import Analysis
from tensorc_dsl.lsp.cursor import Call
from tensorc_dsl.syntax import tree as t


@dataclass(frozen=True, slots=True)
class Parameters:
    """A parameter as it is shown; `position` is None for one that is given by its name only."""

    name: str
    text: str
    position: int | None
    can_be_named: bool = True
    many: bool = False


@dataclass(frozen=True, slots=True)
class Callee:
    name: str
    parameters: tuple[Parameters, ...]
    doc: str


def callee(analysis: Analysis, call: Call, local: Kind | None = None) -> Callee | None:
    """What an open call calls; None for a name that nothing has. `local` is the kind of the name in the body."""
    name, c = call.name, analysis.checked
    if call.is_method:
        known = v.methods_of(ANY).get(name)
        return None if known is None else _of_signature(name, known[0])
    signature = v.STEPS.get(name) or v.FUNCTIONS.get(name) or v.DISTRIBUTIONS.get(name)
    module = next((m for n, m in c.modules.items() if n == name), None)
    if signature is None and module is not None:
        texts = [(p, str(p.name)) for p in module.params]
        return Callee(name, tuple(Parameters(n, p.span.text, k) for k, (p, n) in enumerate(texts)), module.doc)
    signature = signature or v.COMPOUNDS.get(name)
    if signature is not None:
        return _of_signature(name, signature)
    if isinstance(local, ModuleOf):
        return _of_signature(name, Signature(local.params, None, local.keywords))
    compute = c.computes.get(name)
    if compute is not None:
        return _of_compute(compute)
    maths = MATHS.get(name)
    if maths is not None:
        letters = ("x", "y", "z")[: maths.count]
        return Callee(name, tuple(Parameters(x, x, n, False) for n, x in enumerate(letters)), maths.words)
    return None


def _of_signature(name: str, s: Signature) -> Callee:
    shown = [
        Parameters(p.name, _text(p), None if p.named else n, s.keywords)
        for n, p in enumerate((*s.positional, *_named(s)))
    ]
    if s.rest is not None:
        shown.insert(len(s.positional), Parameters(s.rest.name, f"…{s.rest.name}", len(s.positional), False, many=True))
    return Callee(name, tuple(shown), s.doc)


def _named(s: Signature) -> tuple[Parameter, ...]:
    return tuple(p for p in s.params if p.named)


def _text(p: Parameter) -> str:
    wanted = show_all(p.wanted) if p.wanted != (ANY,) else ""
    kind = f": {wanted}" if wanted else ""
    return f"{p.name}{kind}" if p.required else f"[{p.name}{kind}]"


def _of_compute(c: t.ComputeDef) -> Callee:
    """A compute as a task binds it: its sizes and attributes, all by name."""
    sizes = [Parameters(str(n), f"{n}: size", None) for n in dimensions(c)]
    return Callee(str(c.name), (*sizes, *(Parameters(str(a.name), a.span.text, None) for a in c.attributes)), c.doc)
