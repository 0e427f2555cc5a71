"""Loads files: a source and all files that it uses become one checked file, or findings."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain, count, takewhile

from tensorc_dsl.base.diagnostic import Diagnostic, Severity, TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.check import problems
from tensorc_dsl.check.items import FORGETFUL, Instructions, Memory, Names, blocks_of, check_items, is_checked
from tensorc_dsl.check.models import ModelPlan
from tensorc_dsl.check.problems import CUT_OFF, PROVED_BY_VERIFY, where
from tensorc_dsl.check.spaces import Inclusion, nodes_of, recursion, with_prior
from tensorc_dsl.check.uses import Found, Resolve, bound_names, standard, with_full_names, with_values
from tensorc_dsl.check.vocabulary import COMPOUNDS, GIVEN
from tensorc_dsl.elaborate.names import Definitions, Library
from tensorc_dsl.ir.program import Intrinsic, Program
from tensorc_dsl.ir.target import has_spaces
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.names import near
from tensorc_dsl.syntax.parse import Parsed, parse_items, used_items

# What files use of the standard library is loaded once in a process, and again when one of its files has changed.


Path = tuple[str, ...]

MOST = 64
"""Sequences of uses that are kept; those that begin alike share what they loaded."""


@frozen
class _Kept:
    """A loader after a sequence of uses of the library, and the files that were behind each path."""

    loader: Loader
    read: Mapping[Path, tuple[Source, ...]]

    def holds(self, user: Source, resolve: Resolve) -> bool:
        """Whether the same files with the same texts are behind the paths now."""
        try:
            return all(resolve(path, user).sources == sources for path, sources in self.read.items())
        except TschedError:
            return False


_kept: dict[tuple[Path, ...], _Kept] = {}
"""By the uses, in their order: it decides the full names of modules."""


def library_loader(file: t.File, source: Source, resolve: Resolve, parsed: Parse) -> Loader:
    """A loader for the file that has loaded what its first uses name, as far as they name the standard library.

    It finds what a new one would find. A file of the library gets a new one. So does one with instructions, whose names are
    those of all files.
    """
    new = Loader(resolve, parsed)
    if any(isinstance(item, t.IntrinsicDef) for item in file.items):
        return new
    uses = [item.path for item in file.items if isinstance(item, t.UseDecl)]
    paths = tuple(tuple(map(str, path)) for path in takewhile(lambda path: path[0] == "std", uses))
    done = next((n for n in range(len(paths), 0, -1) if paths[:n] in _kept), 0)
    kept = _kept.get(paths[:done])
    if kept is not None and not kept.holds(source, resolve):
        _kept.clear()
        kept, done = None, 0
    for n in range(done, len(paths)):
        more = _after(kept, paths[n], source, resolve)
        if more is None:
            break
        if len(_kept) >= MOST:
            _kept.clear()
        _kept[paths[: n + 1]] = kept = more
    if kept is None or source.name in kept.loader.units:
        return new
    return kept.loader.copy(resolve, parsed)


def _after(kept: _Kept | None, path: Path, user: Source, resolve: Resolve) -> _Kept | None:
    """The library after one more use; None if there is no such path, or the library uses something else."""
    read = {} if kept is None else dict(kept.read)

    def noted(path: Path, user: Source) -> Found:
        found = resolve(path, user)
        read[path] = found.sources
        return found

    loader = Loader(noted, used_items) if kept is None else kept.loader.copy(noted, used_items)
    try:
        found = noted(path, user)
    except TschedError:
        return None
    for used in found.sources:
        loader.unit(used, found.name, ())
    return _Kept(loader, read) if all(p[0] == "std" for p in read) else None


@frozen
class CheckedFile:
    """A file with its own and its used items by name, and its findings.

    `modules` and `targets` also hold those that used items need, under their full names. `intrinsics` has the items of all
    files, since an instruction has the same name everywhere and a trace can contain it; `instructions` are those that they
    define."""

    file: t.File
    computes: dict[str, t.ComputeDef]
    modules: dict[str, t.ModuleDef]
    spaces: dict[str, t.SpaceDef]
    schedules: dict[str, t.ScheduleDef]
    tasks: dict[str, t.TaskDef]
    models: dict[str, t.ModelDef]
    programs: dict[str, t.ProgramDef]
    targets: dict[str, t.TargetDef]
    intrinsics: dict[str, t.IntrinsicDef]
    instructions: tuple[Intrinsic, ...]
    constants: dict[str, t.ConstDef]
    uses: dict[tuple[str, ...], tuple[Source, ...]]
    """The files behind the path of each `use` of the file."""
    library: Library
    diagnostics: tuple[Diagnostic, ...]
    elaborated: dict[str, Program]
    """By the name of a task what it computes, unscheduled, of those with which nothing is wrong."""
    plans: dict[str, ModelPlan]
    """By the name of a model what it does, of those with which nothing is wrong."""

    @property
    def source(self) -> Source:
        return self.file.source

    def program(self, task: str) -> Program:
        """The unscheduled program of a task without findings."""
        return self.elaborated[task]

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        return tuple(d for d in self.diagnostics if d.severity is Severity.ERROR)


def load_file(source: Source, resolve: Resolve = standard) -> CheckedFile:
    """The checked file, with every finding in it and in the files that it uses. Never raises TschedError.

    Of a text that does not parse, the items that do have names, but are not checked, since they may need the other
    items. Two files share the objects of what both use of the standard library.
    """
    own = parse_items(source)
    return _checked(library_loader(own.file, source, resolve, lambda s: own if s is source else used_items(s)), source)


class Versions:
    """Loads versions of one file one after another, as `load_file` does.

    What the versions use is loaded once: for other uses, or when a used file changes, there is another object. Items that a
    version shares with the one before are checked again only if something that they mention has changed.
    """

    def __init__(self, resolve: Resolve, parsed: Parse, memory: Memory) -> None:
        self._resolve = resolve
        self._parsed = parsed
        self._memory = memory
        self._used: Loader | None = None
        """Has loaded what the last version uses; None before there is one."""

    def load(self, source: Source) -> CheckedFile:
        """The checked file. Never raises TschedError."""
        # An instruction of the file may hide one of the same name in a used file, so then nothing is kept.
        file = self._parsed(source).file
        alone = any(isinstance(i, t.IntrinsicDef) for i in file.items)
        if alone or self._used is None:
            loader = library_loader(file, source, self._resolve, self._parsed)
        else:
            loader = self._used.copy(self._resolve, self._parsed)
        loader.memories[source.name] = self._memory
        checked = _checked(loader, source)
        if not alone:
            loader.forget(source)
            self._used = loader
        return checked


def _checked(loader: Loader, source: Source) -> CheckedFile:
    unit = loader.unit(source, "", ())
    n = unit.names
    modules, targets = n.modules | loader.used_modules, n.targets | loader.used_targets
    order = {source.name: 0}
    found = sorted(unit.found, key=lambda d: _position(d, order))
    diagnostics = tuple(dict.fromkeys(found))
    return CheckedFile(
        unit.file,
        n.computes,
        modules,
        n.spaces,
        n.schedules,
        n.tasks,
        n.models,
        n.programs,
        targets,
        loader.intrinsics,
        loader.instructions.of(loader.intrinsics.values()),
        n.constants,
        unit.uses,
        loader.library,
        diagnostics,
        n.elaborated,
        n.plans,
    )


def load_source(source: Source, resolve: Resolve = standard) -> CheckedFile:
    """The checked file. Raises TschedError with all errors and warnings if there is an error.

    An error in the order or the bounds of a program that is written out does not count: only `verify` uses it, and says more.
    """
    checked = load_file(source, resolve)
    if any(d.code not in PROVED_BY_VERIFY for d in checked.errors):
        raise TschedError(*checked.diagnostics)
    return checked


def _position(d: Diagnostic, order: dict[str, int]) -> tuple[int, int]:
    """The sort key of a finding: findings of one file stand together, in text order."""
    if d.span is None:
        return (len(order) + 1, 0)
    return order.setdefault(d.span.source.name, len(order)), d.span.start


# Loads the files behind the uses of a file: names are resolved, and the items of every file are checked once.


# Comments that read like the rest of the line: `A[i] // 2` is a floored quotient in Python, and `A[i]` here.


_OPERAND = r"-?\(*\w[\w.]*(?:\[[^\]\n]*\])?\)*"
_EXPRESSION = rf"{_OPERAND}(?:[ \t]*[-+*/%][ \t]*{_OPERAND})*"
_REST = re.compile(rf"(?<=[\w)\]])[ \t]*//[ \t]*(?=\d|\(|\w+\[)({_EXPRESSION})[)\]}};, \t]*$", re.MULTILINE)
"""A value, and behind it a comment that is an expression. A name alone is more often a word."""


def cut_off(source: Source) -> Iterator[Diagnostic]:
    """A warning for each value that a comment follows which is an expression."""
    for m in _REST.finditer(source.text):
        line = source.text.rfind("\n", 0, m.start()) + 1
        before = source.text[line : m.start()]
        if "//" in before or before.count('"') % 2:
            continue  # inside another comment or a string
        start = source.text.index("//", m.start())
        yield CUT_OFF(Span(source, start, m.end(1)), comment=source.text[start : m.end(1)], divisor=m[1])


_KINDS: dict[type, tuple[str, str]] = {
    t.ComputeDef: ("computes", "compute"),
    t.ModuleDef: ("modules", "module"),
    t.SpaceDef: ("spaces", "space"),
    t.ScheduleDef: ("schedules", "schedule"),
    t.PriorDef: ("priors", "prior"),
    t.TaskDef: ("tasks", "task"),
    t.ModelDef: ("models", "model"),
    t.ProgramDef: ("programs", "program"),
    t.ReducerDef: ("reducers", "reducer"),
    t.TargetDef: ("targets", "target"),
    t.IntrinsicDef: ("intrinsics", "intrinsic"),
    t.ConstDef: ("constants", "constant"),
}


_ASKED_FOR = (t.TaskDef, t.ModelDef, t.ProgramDef, t.ConstDef)
"""What a `use` of all of a file leaves there: tasks, models and programs always, constants unless they are named."""

Parse = Callable[[Source], Parsed]


def _two_sources(place: Span, one: t.NamedItem, other: t.NamedItem, name: str) -> Diagnostic:
    notes = (where("one", one.name.span), where("the other", other.name.span))
    return problems.TWO_SOURCES(place, notes=notes, kind=_KINDS[type(one)][1], name=name)


def _misses(d: Diagnostic) -> str | None:
    """The name that a finding calls unknown; None for other findings."""
    unknown = (problems.UNKNOWN_NAME, problems.UNKNOWN_CALL, problems.UNKNOWN_COMPUTE)
    return d.span.text if d.span is not None and d.code in {p.code for p in unknown} else None


def _full_name(prefix: str, name: str, taken: Container[str]) -> str:
    """`prefix.name`, with a number if another file of that folder has an item of that full name."""
    full = f"{prefix}.{name}"
    return next(n for n in chain([full], (f"{full}#{k}" for k in count(2))) if n not in taken)


@dataclass(slots=True)
class Unit:
    """One file. `names` are those that it can use; `own` has its own items by table and name; `found` includes findings in
    the files that it uses.
    """

    file: t.File
    names: Names = field(default_factory=Names)
    own: dict[tuple[str, str], t.NamedItem] = field(default_factory=dict[tuple[str, str], t.NamedItem])
    found: list[Diagnostic] = field(default_factory=list[Diagnostic])
    uses: dict[tuple[str, ...], tuple[Source, ...]] = field(default_factory=dict[tuple[str, ...], tuple[Source, ...]])
    missing: set[str] = field(default_factory=set[str])
    """Names that its uses ask for, of files that are not found or whose parsed items lack them."""
    broken: bool = False
    """Whether some of its items do not parse."""
    checked: bool = False
    """Whether it is a file of the library in which nothing is wrong, as are all files that it uses."""
    torn: bool = False
    """Whether a `use` imports everything from a broken file, so that any name may be in its broken items."""

    def forgives(self, name: str | None) -> bool:
        """Whether a missing name is not reported, because the error that it follows from already is."""
        return name is not None and (self.torn or name in self.missing)


class Loader:
    """Loads a file, and before it those that it uses, each once."""

    def __init__(self, resolve: Resolve, parsed: Parse) -> None:
        self.resolve = resolve
        self.parsed = parsed
        self.used_modules: dict[str, t.ModuleDef] = {}
        self.used_targets: dict[str, t.TargetDef] = {}
        self.intrinsics: dict[str, t.IntrinsicDef] = {}
        self.instructions = Instructions()
        self.library = Library()
        self.memories: dict[str, Memory] = {}
        """By the name of a file what earlier checks of it found."""
        self.units: dict[str, Unit] = {}

    def copy(self, resolve: Resolve, parsed: Parse) -> Loader:
        """A loader that has loaded the same files, and finds others by `resolve` and `parsed`."""
        other = Loader(resolve, parsed)
        other.used_modules |= self.used_modules
        other.used_targets |= self.used_targets
        other.intrinsics |= self.intrinsics
        other.instructions = self.instructions.copy()
        other.library.files |= self.library.files
        other.units |= self.units
        return other

    def forget(self, source: Source) -> None:
        """Leave what the file uses, but not the file, which has no instructions. Its checked file keeps its definitions."""
        del self.units[source.name]
        kept = {name: own for name, own in self.library.files.items() if name != source.name}
        self.library = replace(self.library, files=kept)

    def unit(self, source: Source, prefix: str, users: tuple[str, ...]) -> Unit:
        """The file with its uses resolved and its items checked. The items of a used file get full names."""
        if source.name in self.units:
            return self.units[source.name]
        parsed = self.parsed(source)
        file, broken = parsed.file, bool(parsed.diagnostics)
        unit = Unit(
            file,
            Names(library=self.library, instructions=self.instructions),
            found=[*parsed.diagnostics, *cut_off(source)],
            broken=broken,
        )
        self.library.files[source.name] = Definitions(unit.names.computes, unit.names.reducers)
        for item in file.items:
            if not isinstance(item, t.UseDecl):
                self._own(item, unit)
        for item in unit.own.values():
            if isinstance(item, t.IntrinsicDef) and (other := self.intrinsics.setdefault(item.name, item)) is not item:
                unit.found.append(_two_sources(item.name.span, other, item, item.name))
        own_modules = dict(unit.names.modules)
        for item in file.items:
            if isinstance(item, t.UseDecl):
                self._use(item, unit, (*users, source.name))
        unit.checked = bool(prefix) and not unit.found and is_checked(source) and self._uses_checked(unit)
        if not broken and not unit.checked:
            memory = self.memories.get(source.name, FORGETFUL)
            # Names that a failed `use` should have imported are not reported a second time.
            unit.found += [d for d in check_items(file.items, unit.names, memory) if not unit.forgives(_misses(d))]
            unit.found += recursion(own_modules)
        self._fill_in(unit)
        self._include(unit)
        self._weigh(unit)
        if prefix:
            self._qualify(unit, prefix)
        self.units[source.name] = unit
        return unit

    def _uses_checked(self, unit: Unit) -> bool:
        """Whether nothing is wrong in any file that the unit uses."""
        return all(self.units[s.name].checked for sources in unit.uses.values() for s in sources)

    def _own(self, item: t.NamedItem, unit: Unit) -> None:
        table, kind = _KINDS[type(item)]
        names = getattr(unit.names, table)
        # A task names a schedule, a space or a prior in the same way.
        n = unit.names
        chosen = (n.spaces, n.schedules, n.priors)
        rivals = chosen if table in ("spaces", "schedules", "priors") else (names,)
        first = next((known[item.name] for known in rivals if item.name in known), None)
        if first is not None:
            note = where("the first one", first.name.span)
            unit.found.append(problems.DUPLICATE_ITEM(item.name.span, notes=(note,), kind=kind, name=item.name))
            return
        names[item.name] = item
        unit.own[table, item.name] = item

    def _fill_in(self, unit: Unit) -> None:
        """Put what constants stand for in the places of their names, where the unit can name any."""
        if not unit.names.constants:
            return
        values = {name: c.value for name, c in unit.names.constants.items()}
        for (table, name), item in unit.own.items():
            if isinstance(item, t.ModuleDef | t.SpaceDef | t.ScheduleDef):
                unit.own[table, name] = getattr(unit.names, table)[name] = with_values(item, values)

    def _include(self, unit: Unit) -> None:
        """Replace the names of spaces in the unit's spaces by their rules."""

        def kind(target: str) -> str | None:
            item = unit.names.targets.get(target) or self.used_targets.get(target)
            return item.kind if item is not None else target if has_spaces(target) else None

        own = {n: s for (_, n), s in unit.own.items() if isinstance(s, t.SpaceDef)}
        inclusion = Inclusion(unit.names.spaces, unit.names.modules, kind)
        for name, space in inclusion.whole(own).items():
            unit.own["spaces", name] = unit.names.spaces[name] = space
        unit.found += inclusion.found

    def _weigh(self, unit: Unit) -> None:
        """Replace the unit's priors by spaces and schedules with their weights."""
        for p in unit.names.priors.values():
            del unit.own["priors", p.name]
            for table, choices in (("spaces", unit.names.spaces), ("schedules", unit.names.schedules)):
                if p.of in choices:
                    unit.own[table, p.name] = choices[p.name] = with_prior(choices[p.of], p)  # type: ignore[index]

    def _qualify(self, unit: Unit, prefix: str) -> None:
        """Give the unit's modules their full names, in their definitions and in all calls.

        Compounds get full names too, since the user may have a module of the same name.
        """
        full = {name: f"std.{name}" for name in COMPOUNDS} | {name: m.name for name, m in unit.names.modules.items()}
        full |= {name: _full_name(prefix, name, self.used_modules) for table, name in unit.own if table == "modules"}
        for key, item in unit.own.items():
            if isinstance(item, t.ModuleDef | t.SpaceDef | t.ScheduleDef):
                unit.own[key] = item = with_full_names(item, full, cache(partial(self._values, item, unit)))
            if isinstance(item, t.SpaceDef) and item.target in unit.names.targets:
                # The user need not be able to name the target of a used space.
                target = _full_name(prefix, item.target, self.used_targets)
                self.used_targets[target] = unit.names.targets[item.target]
                unit.own[key] = replace(item, target=t.Word(target, item.target.span))
            if isinstance(item, t.ModuleDef):
                name = t.Word(full[item.name], item.name.span)
                unit.own[key] = self.used_modules[name] = replace(item, name=name)

    def _values(self, item: t.ModuleDef | t.SpaceDef | t.ScheduleDef, unit: Unit) -> set[str]:
        """The names that mean other values than modules in an item."""
        n, found = unit.names, {*GIVEN, *unit.names.intrinsics}
        if not isinstance(item, t.SpaceDef):
            found |= bound_names(item)
        if isinstance(item, t.ScheduleDef) and (compute := n.computes.get(item.compute)) is not None:
            found |= {p.name for p in (*compute.inputs, *compute.outputs)}
            found.update(blocks_of(item, n.computes, self.library))
        elif isinstance(item, t.ScheduleDef) and (model := n.models.get(item.compute)) is not None:
            found.update(map(str, nodes_of(model)))
        return found

    # --- uses --------------------------------------------------------------------------------------------------------

    def _use(self, use: t.UseDecl, unit: Unit, users: tuple[str, ...]) -> None:
        path = ".".join(use.path)
        place = use.path[-1].span
        try:
            found = self.resolve(use.path, unit.file.source)
        except TschedError as e:
            unit.found += [replace(d, span=place) for d in e.diagnostics]
            unit.missing |= set(use.names)
            return
        unit.uses[use.path] = found.sources
        if not found.sources:
            unit.found.append(problems.UNRESOLVED(place, path=path))
            unit.missing |= set(use.names)
            return
        if again := [s.name for s in found.sources if s.name in users]:
            circle = " > ".join((*users[users.index(again[0]) :], again[0]))
            unit.found.append(problems.CYCLE(use.span, chain=circle))
            return
        items: dict[tuple[str, str], t.NamedItem] = {}
        torn = False
        for source in found.sources:
            used = self.unit(source, found.name, users)
            unit.found += [d for d in used.found if d.severity is Severity.ERROR and d not in unit.found]
            torn |= used.broken
            for (table, name), item in used.own.items():
                wanted = name in use.names if use.names else not isinstance(item, _ASKED_FOR)
                if wanted and (first := items.get((table, name))):
                    unit.found.append(_two_sources(place, first, item, name))
                items[table, name] = item
        unit.torn |= torn and not use.names
        for name in use.names:
            if any(n == name for _, n in items):
                continue
            if torn:
                unit.missing.add(name)
            else:
                known = {n for _, n in items}
                unit.found.append(
                    problems.NOT_IN_FILE(
                        name.span,
                        notes=near(name, known, f"write `{name}` there, or leave it out"),
                        path=path,
                        name=name,
                    )
                )
        for (table, name), item in items.items():
            if not use.names or name in use.names:
                self._bring(use, unit, table, name, item)

    def _bring(self, use: t.UseDecl, unit: Unit, table: str, name: str, item: t.NamedItem) -> None:
        """Bind one item of a used file to its name."""
        kind = _KINDS[type(item)][1]
        place = next((n.span for n in use.names if n == name), use.span)
        if isinstance(item, _ASKED_FOR) and not use.names:
            return
        if isinstance(item, t.TaskDef | t.ModelDef | t.ProgramDef):
            unit.found.append(problems.NOT_IMPORTED(place, kind=kind, name=name))
            return
        names = getattr(unit.names, table)
        first = names.get(name)
        if first is not None and first is not item:
            unit.found.append(_two_sources(place, first, item, name))
            return
        names[name] = item
        if isinstance(item, t.ScheduleDef) and item.compute not in unit.names.computes and use.names:
            if item.compute not in use.names:
                notes = near(item.compute, unit.names.computes, f"import it, too: `use FILE.{{{item.compute}, …}}`")
                unit.found.append(problems.UNKNOWN_COMPUTE(place, notes=notes, name=item.compute))
