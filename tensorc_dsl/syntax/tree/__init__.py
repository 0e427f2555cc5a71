"""The syntax tree of `.tsched`: what the parser builds and the printer prints.

One expression union serves the compute and the schedule layer; the checker restricts it for each. Every node has a
span that takes no part in equality, so `parse(print(tree)) == tree`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tensorc_dsl.base.source import Source
from tensorc_dsl.syntax.tree.compute import (
    Assumption,
    ComputeDef,
    Effect,
    IntrinsicDef,
    Layout,
    Lowering,
    Operand,
    ReducerDef,
    Stage,
    TaskDef,
)
from tensorc_dsl.syntax.tree.expressions import (
    MAX_BITS,
    Attribute,
    BinaryExpr,
    Bool,
    Branch,
    CallExpr,
    CompareExpr,
    Conditional,
    DrawStmt,
    Either,
    Expr,
    ExprStmt,
    ForList,
    If,
    IndexExpr,
    IndexSpec,
    Lambda,
    Let,
    ListExpr,
    ListPattern,
    LogicExpr,
    MapExpr,
    Maybe,
    Name,
    NamePattern,
    Negate,
    NotExpr,
    Number,
    Pattern,
    RangeExpr,
    Reduce,
    Rest,
    Scan,
    SliceExpr,
    Stmt,
    String,
    Try,
    Wildcard,
    Yield,
)
from tensorc_dsl.syntax.tree.parameters import (
    Param,
    ParamType,
    TensorParam,
    TensorType,
)
from tensorc_dsl.syntax.tree.program import (
    BlockStmt,
    BufferDecl,
    IterDecl,
    LoopHeader,
    LoopStmt,
    ProgramDef,
    ProgramStmt,
    StoreStmt,
)
from tensorc_dsl.syntax.tree.schedule import (
    ConstDef,
    ModuleDef,
    PriorDef,
    ScheduleDef,
    SpaceDef,
    TargetDef,
    UseDecl,
    Weighing,
)
from tensorc_dsl.syntax.tree.word import Word

__all__ = [
    "MAX_BITS",
    "Assumption",
    "Attribute",
    "BinaryExpr",
    "BlockStmt",
    "Bool",
    "Branch",
    "BufferDecl",
    "CallExpr",
    "CompareExpr",
    "ComputeDef",
    "Conditional",
    "ConstDef",
    "DrawStmt",
    "Effect",
    "Either",
    "Expr",
    "ExprStmt",
    "File",
    "ForList",
    "If",
    "IndexExpr",
    "IndexSpec",
    "IntrinsicDef",
    "Item",
    "IterDecl",
    "Lambda",
    "Layout",
    "Let",
    "ListExpr",
    "ListPattern",
    "LogicExpr",
    "LoopHeader",
    "LoopStmt",
    "Lowering",
    "MapExpr",
    "Maybe",
    "ModuleDef",
    "Name",
    "NamePattern",
    "NamedItem",
    "Negate",
    "NotExpr",
    "Number",
    "Operand",
    "Param",
    "ParamType",
    "Pattern",
    "PriorDef",
    "ProgramDef",
    "ProgramStmt",
    "RangeExpr",
    "Reduce",
    "ReducerDef",
    "Rest",
    "Scan",
    "ScheduleDef",
    "SliceExpr",
    "SpaceDef",
    "Stage",
    "Stmt",
    "StoreStmt",
    "String",
    "TargetDef",
    "TaskDef",
    "TensorParam",
    "TensorType",
    "Try",
    "UseDecl",
    "Weighing",
    "Wildcard",
    "Word",
    "Yield",
]  # fmt: skip

NamedItem = (
    ComputeDef
    | ReducerDef
    | IntrinsicDef
    | TargetDef
    | ConstDef
    | ModuleDef
    | SpaceDef
    | ScheduleDef
    | PriorDef
    | TaskDef
    | ProgramDef
)
Item = NamedItem | UseDecl


@dataclass(frozen=True, slots=True)
class File:
    """A parsed file: its items in order."""

    source: Source = field(compare=False, repr=False)
    items: tuple[Item, ...]
